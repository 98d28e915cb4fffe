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

All but decimal have a fixed width, padded with zeros, so texts sort as their ids do. No text
means two ids. A text of digits that does not begin with 0 is decimal in every form, since much
of Django writes ids so. Without a prefix, therefore, the few ids (one in a million or fewer)
whose text would consist of such digits are written in decimal.

Crockford's alphabet: https://www.crockford.com/base32.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from .errors import ConfigurationError, InvalidId
from .segment import MAX_ID

WHOLE_NUMBERS = "ids are whole numbers of 1 to 2**63 - 1"
DIGITS = "0123456789"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LONGEST_TEXT = 10_000
"""Characters. A longer text is not searched for an id."""
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
    """How to write an id: ``prefix``, then its digits in ``alphabet``. Frozen.

    Raises :class:`ConfigurationError` for an alphabet that is not one of
    :data:`ALPHABETS`, or a prefix that is not a letter followed by up to 15 letters,
    digits, hyphens and underscores (or empty).
    """

    alphabet: str = "decimal"
    prefix: str = ""
    width: int = field(init=False, repr=False, compare=False)
    """Digits of every id; 0 for decimal, whose length varies."""
    _digits: str = field(init=False, repr=False, compare=False)
    _values: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.alphabet, str) or self.alphabet not in ALPHABETS:
            raise ConfigurationError(
                f"There is no text form {self.alphabet!r}. Known: "
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
        """Whether it writes an id as ``str()`` does."""
        return not self.width and not self.prefix

    @property
    def takes_numbers(self) -> bool:
        """Whether :meth:`read` also accepts numbers."""
        return True

    @property
    def pattern(self) -> str:
        """A regular expression, without anchors or groups, for all that :meth:`read` accepts.

        It also matches some texts that :meth:`read` refuses.
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
        """The id of a text in this form, with its prefix.

        Raises :class:`InvalidId`.
        """
        digits = self._digits_of(text)
        if self.width and not self.prefix and is_number(text):
            return DECIMAL.parse(text)
        self._check_length(text, digits)
        value = self._value(text, digits)
        if not 1 <= value <= MAX_ID:
            raise InvalidId(text, "ids are 1 to 2**63 - 1")
        return value

    def read(self, value: object) -> int:
        """The id of input from outside: an int, its decimal digits, or its text in this form.

        Raises :class:`InvalidId`.
        """
        return self.read_trusted(value)

    def read_trusted(self, value: object) -> int:
        """As :meth:`read`, for input of Python, Django or staff: every form accepts numbers.

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

    def _digits_of(self, text: str) -> str:
        """What follows the prefix, in the characters of the alphabet."""
        if not isinstance(text, str):
            raise InvalidId(text, f"the text of an id is a string, not a {type(text).__name__}")
        if not text.startswith(self.prefix):
            raise InvalidId(text, f"it does not begin with {self.prefix!r}")
        digits = text[len(self.prefix) :]
        if not digits.isascii():
            return digits
        if self.alphabet == "crockford":
            return digits.upper().translate(_ALIASES)
        return digits.lower() if self.alphabet == "base36" else digits

    @property
    def named(self) -> str:
        """The alphabet, for people."""
        return "Crockford's base32" if self.alphabet == "crockford" else self.alphabet

    def _value(self, given: str, digits: str) -> int:
        value, base = 0, len(self._digits)
        for digit in digits:
            found = self._values.get(digit)
            if found is None and self.alphabet == "decimal" and digit in "+-.":
                raise InvalidId(given, WHOLE_NUMBERS)
            if found is None:
                raise InvalidId(given, f"{digit!r} is not a digit of {self.named}")
            value = value * base + found
        return value

    def _check_length(self, given: str, digits: str) -> None:
        if self.width:
            if len(digits) != self.width:
                raise InvalidId(
                    given, f"in {self.named} an id has {self.width} digits, not {len(digits)}"
                )
        elif not 1 <= len(digits) <= len(str(MAX_ID)):
            raise InvalidId(given, f"an id has 1 to {len(str(MAX_ID))} digits, not {len(digits)}")
        elif len(digits) > 1 and digits[0] == "0":
            raise InvalidId(given, "it begins with 0")


def check_id(value: object) -> None:
    """Raise :class:`InvalidId` unless ``value`` can be an id."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidId(value, f"an id is an int, not a {type(value).__name__}")
    if not 1 <= value <= MAX_ID:
        raise InvalidId(value, "ids are 1 to 2**63 - 1")


def is_number(text: str) -> bool:
    """Whether a text is a decimal number as ``str()`` writes it."""
    return text.isascii() and text.isdigit() and text[0] != "0"


def _width(base: int) -> int:
    width, end = 1, base
    while end <= MAX_ID:
        width, end = width + 1, end * base
    return width


DECIMAL = TextForm()
"""Plain decimal digits."""


# --- scrambled: texts that outsiders can't count --------------------------------------
#
# The ids of a tag are 1, 2, 3: two of them tell how many orders came in between. A scrambled
# text tells nothing without the key, and only the key can make a valid one:
#
#     par_A  6Q0V3TZ8RK1NW  5
#     |   |  |              check digit: shows every mistyped character
#     |   |  the id, as one of 2**64 numbers in an order that the key decides
#     |   the version of the key: after a rotation, older texts are read with their own
#     prefix
#
# It is a Feistel network of ten rounds over 64 bits. The round function is BLAKE2b under the
# key and the name of the ids (their tag). It is a permutation, so no two ids share a text, and
# one key serves any number of fields. Established libraries encrypt blocks of 128 bits, which
# would double the text, or encode without a secret. Scrambling hides numbers; it is no
# permission. A version is a letter, so no text looks like a number.

VERSIONS = tuple(filter(str.isalpha, CROCKFORD))
"""The versions that a key may have: letters of every alphabet."""
ROUNDS = 10
HALF = 32
"""Bits of each half."""
LOW = (1 << HALF) - 1


@dataclass(frozen=True, slots=True)
class ScrambledForm(TextForm):
    """A version, the scrambled id and a check digit in ``alphabet``, after ``prefix``.

    ``name`` separates the kinds of ids that share a key. ``keys()`` returns a secret for each
    version: the last one writes, and all can be read. Frozen.

    Raises :class:`ConfigurationError` as :class:`TextForm` does, and for decimal.
    """

    name: str = field(kw_only=True)
    keys: Callable[[], Mapping[str, bytes]] = field(kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        TextForm.__post_init__(self)  # dataclasses with slots have no super()
        if not self.width:
            raise ConfigurationError(
                "A scrambled id can't be decimal, because it would look like a plain id. Use "
                "'crockford', 'base36' or 'base62'."
            )
        object.__setattr__(self, "width", self.width + 2)

    @property
    def takes_numbers(self) -> bool:
        return False

    def format(self, value: int) -> str:
        """The text of an id under the newest key.

        Raises :class:`InvalidId` for what can't be an id, and :class:`ConfigurationError`
        where there is no key.
        """
        check_id(value)
        keys = self.keys()
        if not keys:
            raise ConfigurationError(
                f"There is no key to scramble the ids of {self.name!r}. Add one to "
                f"IDGEN['SCRAMBLE_KEYS']."
            )
        version = list(keys)[-1]
        scrambling = _scrambling(keys[version], self.name)
        digits = self._version_written(version) + self._spelled(
            scrambling.scramble(value), self.width - 2
        )
        return f"{self.prefix}{digits}{self._check_digit(digits, scrambling)}"

    def parse(self, text: str) -> int:
        """The id of a text that :meth:`format` wrote with a key that still exists.

        Raises :class:`InvalidId`.
        """
        digits = self._digits_of(text)
        self._check_length(text, digits)
        self._value(text, digits)  # every character is a digit
        keys, version = self.keys(), digits[0].upper()
        if version not in keys or digits[0] != self._version_written(version):
            raise InvalidId(text, f"it was written with key {digits[0]!r}, which is not known")
        scrambling = _scrambling(keys[version], self.name)
        if digits[-1] != self._check_digit(digits[:-1], scrambling):
            raise InvalidId(text, "its check digit is wrong: a character was mistyped")
        number = self._value(text, digits[1:-1])
        value = scrambling.restore(number) if number >> 2 * HALF == 0 else 0
        if not 1 <= value <= MAX_ID:
            raise InvalidId(text, "no id is written like this")
        return value

    def read(self, value: object) -> int:
        """The id of input from outside. Raises :class:`InvalidId`, also for numbers."""
        if isinstance(value, int) or (isinstance(value, str) and is_number(value)):
            raise InvalidId(value, "a number is not accepted here; give the text of the id")
        return self.read_trusted(value)

    def _version_written(self, version: str) -> str:
        return version.lower() if self.alphabet == "base36" else version

    def _check_digit(self, digits: str, scrambling: _Scrambling) -> str:
        """Luhn's check digit, shifted by the key, so that it also shows a wrong key."""
        base, total = len(self._digits), scrambling.offset
        for place, digit in enumerate(reversed(digits)):
            number = self._values[digit] * (2 - place % 2)
            total += number // base + number % base
        return self._digits[-total % base]


class _Scrambling:
    """A permutation of 64 bits, and a number for check digits. Immutable."""

    __slots__ = ("_rounds", "offset")

    def __init__(self, secret: bytes, name: str) -> None:
        key = blake2b(secret).digest()
        person = blake2b(name.encode(), digest_size=blake2b.PERSON_SIZE).digest()
        self._rounds = tuple(
            blake2b(bytes([each]), key=key, person=person, digest_size=HALF // 8)
            for each in range(ROUNDS)
        )
        self.offset = blake2b(b"check digit", key=key, person=person).digest()[0]

    def scramble(self, value: int) -> int:
        left, right = value >> HALF, value & LOW
        for keyed in self._rounds:
            left, right = right, left ^ _mixed(keyed, right)
        return left << HALF | right

    def restore(self, value: int) -> int:
        left, right = value >> HALF, value & LOW
        for keyed in reversed(self._rounds):
            left, right = right ^ _mixed(keyed, left), left
        return left << HALF | right


def _mixed(keyed: blake2b, half: int) -> int:
    hashing = keyed.copy()
    hashing.update(half.to_bytes(HALF // 8))
    return int.from_bytes(hashing.digest())


@lru_cache(maxsize=1024)
def _scrambling(secret: bytes, name: str) -> _Scrambling:
    return _Scrambling(secret, name)
