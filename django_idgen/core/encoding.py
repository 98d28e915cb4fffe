"""Ids as text: decimal digits, base36, base62 or Crockford's base32, with an optional prefix.

==============  ==========================================  ==========================
alphabet        an id of 63 bits                            read
==============  ==========================================  ==========================
``decimal``     1 to 19 digits                              as written
``base36``      13 of ``0-9a-z``                            in either case
``crockford``   13 of ``0-9A-Z`` without I, L, O, U         in either case; I, L are 1,
                                                            O is 0, hyphens are skipped
``base62``      11 of ``0-9A-Za-z``                         as written
==============  ==========================================  ==========================

All but decimal are of one width, filled up with zeros, so texts sort as their ids do; and
no text means two ids. Digits alone that don't begin with 0 are decimal in every form, since
much of Django writes ids so. Without a prefix, therefore, the few ids (one in ten million
or fewer) that would be nothing but such digits are written in decimal.

Crockford's alphabet: https://www.crockford.com/base32.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import ConfigurationError, InvalidId
from .segment import MAX_ID

__all__ = ["ALPHABETS", "DECIMAL", "MAX_PREFIX_LENGTH", "TextForm", "check_id", "is_number"]

DIGITS = "0123456789"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
MAX_PREFIX_LENGTH = 16
PREFIX = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_PREFIX_LENGTH - 1}}}", re.ASCII)

ALPHABETS = {
    "decimal": DIGITS,
    "base36": DIGITS + UPPER.lower(),
    "base62": DIGITS + UPPER + UPPER.lower(),
    "crockford": CROCKFORD,
}
"""The digits of each alphabet, by its name; in the order of their ASCII codes."""

_ALIASES = str.maketrans({"I": "1", "L": "1", "O": "0", "-": None})


@dataclass(frozen=True, slots=True)
class TextForm:
    """How an id is written: ``prefix``, then its digits in ``alphabet``. Frozen, freely shared.

    Raises :class:`ConfigurationError` for an alphabet that is not one of
    :data:`ALPHABETS`, or a prefix that is not a letter followed by up to 15 letters,
    digits, hyphens and underscores (or empty).
    """

    alphabet: str = "decimal"
    prefix: str = ""
    width: int = field(init=False, repr=False, compare=False)
    """Digits of every id; 0 for decimal, whose ids are as long as they are."""
    _digits: str = field(init=False, repr=False, compare=False)
    _values: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.alphabet, str) or self.alphabet not in ALPHABETS:
            raise ConfigurationError(
                f"There is no text form {self.alphabet!r}. There are "
                f"{', '.join(map(repr, ALPHABETS))}."
            )
        if not isinstance(self.prefix, str) or (self.prefix and not PREFIX.fullmatch(self.prefix)):
            raise ConfigurationError(
                f"A prefix must be a letter and up to {MAX_PREFIX_LENGTH - 1} letters, digits, "
                f"hyphens or underscores, all of ASCII, such as 'ord_', not {self.prefix!r}."
            )
        digits = ALPHABETS[self.alphabet]
        decimal = self.alphabet == "decimal"
        object.__setattr__(self, "_digits", digits)
        object.__setattr__(self, "_values", {digit: n for n, digit in enumerate(digits)})
        object.__setattr__(self, "width", 0 if decimal else _width(len(digits)))

    @property
    def is_plain(self) -> bool:
        """Whether it is what ``str()`` makes of an int."""
        return not self.width and not self.prefix

    @property
    def takes_numbers(self) -> bool:
        """Whether :meth:`read` takes numbers beside texts of this form."""
        return True

    @property
    def pattern(self) -> str:
        """A regular expression, without anchors or groups, of everything that :meth:`read` reads.

        It also matches some texts that are no ids, which :meth:`read` refuses.
        """
        body = r"[0-9A-Za-z-]+" if self.alphabet == "crockford" else r"[0-9A-Za-z]+"
        if not self.width:
            body = r"[0-9]+"
        return f"(?:{re.escape(self.prefix)})?{body}" if self.prefix else body

    def format(self, value: int) -> str:
        """The text of an id. Raises :class:`InvalidId` for what can't be one."""
        check_id(value)
        if not self.width:
            return f"{self.prefix}{value:d}"
        text = self._spelled(value, self.width)
        return f"{value:d}" if not self.prefix and is_number(text) else self.prefix + text

    def parse(self, text: str) -> int:
        """The id of a text in this very form, prefix included.

        Raises :class:`InvalidId`.
        """
        if not isinstance(text, str):
            raise InvalidId(text, f"a text is a string, and this is a {type(text).__name__}")
        if not text.startswith(self.prefix):
            raise InvalidId(text, f"it does not begin with {self.prefix!r}")
        if self.width and not self.prefix and is_number(text):
            return DECIMAL.parse(text)
        digits = self._normalised(text[len(self.prefix) :])
        self._check_length(text, digits)
        value = self._value(text, digits)
        if not 1 <= value <= MAX_ID:
            raise InvalidId(text, "ids are 1 to 2**63 - 1")
        return value

    def read(self, value: object) -> int:
        """The id that somebody gave: an int, its decimal digits, or its text in this form.

        Raises :class:`InvalidId`.
        """
        return self.read_trusted(value)

    def read_trusted(self, value: object) -> int:
        """The same of what Python, Django or staff gave: numbers are read in every form.

        Raises :class:`InvalidId`.
        """
        if isinstance(value, str):
            return (DECIMAL if is_number(value) else self).parse(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidId(value, f"an id is an int or a string, not a {type(value).__name__}")
        check_id(value)
        return value

    def _spelled(self, value: int, width: int) -> str:
        base, digits = len(self._digits), []
        for _ in range(width):
            value, digit = divmod(value, base)
            digits.append(self._digits[digit])
        return "".join(reversed(digits))

    def _normalised(self, digits: str) -> str:
        if self.alphabet == "crockford":
            return digits.upper().translate(_ALIASES) if digits.isascii() else digits
        if self.alphabet == "base36":
            return digits.lower() if digits.isascii() else digits
        return digits

    def _value(self, given: str, digits: str) -> int:
        value, base = 0, len(self._digits)
        for digit in digits:
            found = self._values.get(digit)
            if found is None:
                raise InvalidId(given, f"{digit!r} is no digit of {self.alphabet}")
            value = value * base + found
        return value

    def _check_length(self, given: str, digits: str) -> None:
        if self.width:
            if len(digits) != self.width:
                raise InvalidId(
                    given, f"in {self.alphabet} an id has {self.width} digits, not {len(digits)}"
                )
        elif not 1 <= len(digits) <= len(str(MAX_ID)):
            raise InvalidId(given, f"an id has 1 to {len(str(MAX_ID))} digits, not {len(digits)}")
        elif len(digits) > 1 and digits[0] == "0":
            raise InvalidId(given, "it begins with 0")


def check_id(value: object) -> None:
    """Refuse what can't be an id. Raises :class:`InvalidId`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidId(value, f"an id is an int, and this is a {type(value).__name__}")
    if not 1 <= value <= MAX_ID:
        raise InvalidId(value, "ids are 1 to 2**63 - 1")


def is_number(text: str) -> bool:
    """Whether a text is a decimal number as ``str()`` writes one."""
    return text.isascii() and text.isdigit() and text[0] != "0"


def _width(base: int) -> int:
    width, end = 1, base
    while end <= MAX_ID:
        width, end = width + 1, end * base
    return width


DECIMAL = TextForm()
"""Plain decimal digits."""
