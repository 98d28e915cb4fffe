"""Scrambled texts: reversible, of one key, and nothing that an outsider can count or make up."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core import encoding
from django_idgen.core.encoding import ALPHABETS, ScrambledForm
from django_idgen.core.errors import ConfigurationError, InvalidId
from django_idgen.core.segment import MAX_ID
from tests.tables import refused

FORMS = ("crockford", "base36", "base62")
OLD, NEW = b"the first key of the shop", b"the second key of the shop"

ids = st.integers(1, MAX_ID)


def form(
    alphabet: str = "crockford", prefix: str = "", name: str = "orders", **keys: bytes
) -> ScrambledForm:
    return ScrambledForm(alphabet, prefix, name=name, keys=lambda: keys or {"A": OLD})


@pytest.mark.parametrize("alphabet", FORMS)
@given(value=ids)
def test_a_text_is_read_as_the_id_that_it_was_written_of(alphabet: str, value: int) -> None:
    """In every alphabet, of one width, under the key's version; letters first: no number."""
    scrambled = form(alphabet, "ord_")
    text = scrambled.format(value)
    assert scrambled.read(text) == scrambled.parse(text) == value
    assert len(text) == len("ord_") + scrambled.width
    assert text[4] in "Aa"
    assert set(text[4:]) <= set(ALPHABETS[alphabet])


def test_texts_are_of_these_ids_for_ever() -> None:
    """They stand on paper and in bookmarks: no release may read them as other ids."""
    assert form().format(1) == "AEG1T58Y4G6NP1W"
    assert form("base36").format(1) == "a3j0xzltgvx1vls"
    assert form("base62", "ord_").format(2**63 - 1) == "ord_AHWLZQKzFi370"


def signed(scrambled: ScrambledForm, number: int, width: int) -> str:
    """A text of ``number`` in so many digits, with the check digit that the key gives it."""
    digits = "A" + scrambled._spelled(number, width)
    (keyed,) = scrambled.keys().values()
    return digits + scrambled._check_digit(digits, encoding._scrambling(keyed, scrambled.name))


def test_an_id_has_one_text() -> None:
    """Not one in more or fewer digits, nor of a number past 64 bits, though it is well signed."""
    scrambled = form()
    text = scrambled.format(7)
    number = scrambled._value(text, text[1:-1])
    assert signed(scrambled, number, 13) == text
    small = next(value for value in range(1, 10**6) if scrambled.format(value)[1] == "0")
    tail = scrambled._value("", scrambled.format(small)[1:-1])
    for other, width in ((number + 2**64, 13), (number, 14), (tail, 12)):
        refused(InvalidId, scrambled.parse, signed(scrambled, other, width))


def test_neighbours_have_nothing_in_common() -> None:
    """Each place of the text takes each digit about as often, whatever the ids count."""
    texts = [form().format(value) for value in range(1, 6_401)]
    for place in range(2, 15):  # the first holds the version, the next 4 bits
        seen = Counter(text[place] for text in texts)
        assert len(seen) == 32
        assert max(seen.values()) < 280  # 200 on the average, 14 a standard deviation
    changed = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in pairwise(texts)]
    assert sum(changed) / len(changed) > 12


@given(value=ids, place=st.integers(1, 14), by=st.integers(1, 31))
def test_one_mistyped_character_is_noticed(value: int, place: int, by: int) -> None:
    digits = ALPHABETS["crockford"]
    text = form().format(value)
    wrong = digits[(digits.index(text[place]) + by) % 32]
    with pytest.raises(InvalidId, match="check digit is wrong"):
        form().parse(text[:place] + wrong + text[place + 1 :])


@given(value=ids)
def test_crockfords_slips_of_the_pen_are_read(value: int) -> None:
    text = form().format(value)
    for other in (text.lower(), text.replace("0", "O").replace("1", "l"), f"{text[:5]}-{text[5:]}"):
        assert form().read(other) == value


@given(value=ids)
def test_texts_of_an_older_key_are_read_after_a_rotation(value: int) -> None:
    """The version in the text says which key; the last of the keys writes."""
    before, after = form(A=OLD), form(A=OLD, B=NEW)
    assert after.format(value).startswith("B")
    assert after.parse(before.format(value)) == value
    with pytest.raises(InvalidId, match="key 'A', which is not known"):
        form(B=NEW).parse(before.format(value))


def test_a_wrong_key_reads_another_row_in_no_more_than_one_of_fifty() -> None:
    """The check digit hangs on the key, and half of the 64 bits are no ids (hazard 91)."""
    texts = [form(A=OLD).format(value) for value in range(1, 3_001)]
    wrong, misread = form(A=NEW), []
    for text in texts:
        with suppress(InvalidId):
            misread.append(wrong.parse(text))
    assert len(misread) < 60
    assert all(value > 2**40 for value in misread)  # never a number that a tag has reached


def test_ids_of_two_names_have_texts_of_their_own() -> None:
    """One key serves many fields, and order 5 doesn't show which is customer 5."""
    orders, customers = form(name="orders"), form(name="customers")
    both = [(orders.format(value), customers.format(value)) for value in range(1, 100)]
    assert all(one[1:] != other[1:] for one, other in both)


def test_numbers_from_outside_are_refused() -> None:
    for number in (5, "5", "249874376732819456", 2**63 - 1, True):
        refused(
            InvalidId, form().read, number, match="a number is not accepted here; give the text"
        )


def test_python_and_staff_may_give_a_number() -> None:
    assert [form().read_trusted(each) for each in (5, "5", form().format(5))] == [5, 5, 5]


NO_TEXTS = [
    ("", "15 digits, not 0"),
    ("A" * 14, "15 digits, not 14"),
    ("A" * 16, "15 digits, not 16"),
    ("Ä" * 15, "not a digit of Crockford's base32"),
    ("A" + "?" * 14, "not a digit of Crockford's base32"),
    ("0" * 14 + "A", "key '0', which is not known"),
    ("B" * 15, "key 'B', which is not known"),
    (None, "not a NoneType"),
    (1.5, "not a float"),
]


def test_what_is_no_text_is_refused_in_words() -> None:
    for text, words in NO_TEXTS:
        refused(InvalidId, form().parse, text, match=words)


def test_a_prefix_must_be_there() -> None:
    text = form(prefix="ord_").format(5)
    with pytest.raises(InvalidId, match="does not begin with 'ord_'"):
        form(prefix="ord_").parse(text.removeprefix("ord_"))


def test_what_is_no_id_is_not_written() -> None:
    for value in (0, -1, 2**63, True, "5", 1.0, None):
        refused(InvalidId, form().format, value)


def test_there_is_no_decimal_form() -> None:
    with pytest.raises(ConfigurationError, match="Use 'crockford', 'base36' or 'base62'"):
        form("decimal")


def test_without_a_key_nothing_is_written() -> None:
    bare = ScrambledForm("crockford", name="orders", keys=dict)
    with pytest.raises(ConfigurationError, match=r"IDGEN\['SCRAMBLE_KEYS'\]"):
        bare.format(1)


def test_the_key_is_in_no_repr() -> None:
    assert "shop" not in repr(form()) + repr(form(A=OLD).keys)
