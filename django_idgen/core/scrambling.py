"""Texts of ids that outsiders can't count: a keyed, reversible scrambling.

The ids of a tag are 1, 2, 3: two of them tell how many orders came in between. A scrambled
text tells nothing without the key, and nobody can make a valid one::

    par_A  6Q0V3TZ8RK1NW  5
    |   |  |              check digit: every mistyped character is noticed
    |   |  the id, as one of 2**64 numbers in an order that the key decides
    |   the version of the key: after a rotation, older texts are read with their own
    prefix

It is a Feistel network of ten rounds over 64 bits, whose round function is BLAKE2b under the
key and the name of the ids (their tag): a permutation, so no two ids share a text, and one
key serves any number of fields. Well-kept libraries encrypt blocks of 128 bits, which would
double the text, or encode without a secret. Scrambling hides numbers; it is no permission.

A version is a letter, so no text looks like a number, and numbers are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from .encoding import CROCKFORD, TextForm, check_id, is_number
from .errors import ConfigurationError, InvalidId
from .segment import MAX_ID

__all__ = ["VERSIONS", "ScrambledForm"]

VERSIONS = tuple(filter(str.isalpha, CROCKFORD))
"""What a version of the key may be: a letter that every alphabet has."""
ROUNDS = 10
HALF = 32
"""Bits of each half."""
LOW = (1 << HALF) - 1


@dataclass(frozen=True, slots=True)
class ScrambledForm(TextForm):
    """A version, the scrambled id and a check digit in ``alphabet``, after ``prefix``.

    ``name`` tells ids of one kind from others under the same key. ``keys()`` gives a secret
    for each version, of which the last writes and all are read. Frozen, freely shared.

    Raises :class:`ConfigurationError` as :class:`TextForm` does, and for decimal.
    """

    name: str = field(kw_only=True)
    keys: Callable[[], Mapping[str, bytes]] = field(kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        TextForm.__post_init__(self)  # dataclasses with slots have no super()
        if not self.width:
            raise ConfigurationError(
                "Scrambled ids have no decimal form, which would look like plain ids. Take "
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
                f"There is no key to scramble the ids of {self.name!r} with. Give "
                f"IDGEN['SCRAMBLE_KEYS'] one."
            )
        version = list(keys)[-1]
        scrambling = _scrambling(keys[version], self.name)
        digits = self._version_written(version) + self._spelled(
            scrambling.scramble(value), self.width - 2
        )
        return f"{self.prefix}{digits}{self._check_digit(digits, scrambling)}"

    def parse(self, text: str) -> int:
        """The id of a text that :meth:`format` made, under any key that is still there.

        Raises :class:`InvalidId`.
        """
        if not isinstance(text, str):
            raise InvalidId(text, f"a text is a string, and this is a {type(text).__name__}")
        if not text.startswith(self.prefix):
            raise InvalidId(text, f"it does not begin with {self.prefix!r}")
        digits = self._normalised(text[len(self.prefix) :])
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
            raise InvalidId(text, "no id is written so")
        return value

    def read(self, value: object) -> int:
        """The id of a text that came from outside. Raises :class:`InvalidId`, also for numbers."""
        if isinstance(value, int) or (isinstance(value, str) and is_number(value)):
            raise InvalidId(value, "a number is not taken here; give the text of the id")
        return self.read_trusted(value)

    def _version_written(self, version: str) -> str:
        return version.lower() if self.alphabet == "base36" else version

    def _check_digit(self, digits: str, scrambling: _Scrambling) -> str:
        """Luhn's, in this alphabet, moved on by what the key says: a wrong key is noticed, too."""
        base, total = len(self._digits), scrambling.offset
        for place, digit in enumerate(reversed(digits)):
            number = self._values[digit] * (2 - place % 2)
            total += number // base + number % base
        return self._digits[-total % base]


class _Scrambling:
    """A permutation of 64 bits, and a number for check digits. Immutable, so thread-safe."""

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
