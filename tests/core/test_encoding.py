"""Ids as text: every form comes back as the id it was, and nothing else is read."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from django_idgen.core.encoding import ALPHABETS, DECIMAL, MAX_PREFIX_LENGTH, TextForm
from django_idgen.core.errors import ConfigurationError, InvalidId
from tests.tables import refused

LAST = 2**63 - 1
ids = st.one_of(st.integers(1, LAST), st.integers(1, 100), st.integers(LAST - 100, LAST))
prefixes = st.one_of(st.just(""), st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,15}", fullmatch=True))
forms = st.builds(TextForm, st.sampled_from(list(ALPHABETS)), prefixes)
wide = st.builds(TextForm, st.sampled_from(["base36", "base62", "crockford"]), prefixes)


# --- round trips ----------------------------------------------------------------


@given(forms, ids)
def test_a_text_is_read_as_the_id_it_was_made_of(form: TextForm, value: int) -> None:
    """In every form and with every prefix, by ``parse`` and ``read``, and in URLs.

    So no two ids have one text.
    """
    text = form.format(value)
    assert text.isascii()
    assert re.fullmatch(form.pattern, text)
    assert text.startswith(form.prefix)
    assert form.parse(text) == value
    assert form.read(text) == value
    assert form.read(value) == value


@given(wide, ids, ids)
def test_texts_sort_as_their_ids(form: TextForm, first: int, second: int) -> None:
    """All forms but decimal have one width: byte order is the order of the ids."""
    texts = form.format(first), form.format(second)
    assume(not any(text.isdigit() and text[0] != "0" for text in texts))
    assert (texts[0] < texts[1]) == (first < second)
    assert len(texts[0]) == len(form.prefix) + form.width


@given(forms, ids)
def test_decimal_digits_are_read_in_every_form(form: TextForm, value: int) -> None:
    """Also as many digits as the form has: Django writes ids so, in links and options."""
    assert form.read(str(value)) == value
    assert re.fullmatch(form.pattern, str(value))


@given(st.sampled_from(["base36", "base62", "crockford"]), st.data())
def test_a_text_of_digits_alone_is_never_of_two_ids(alphabet: str, data: st.DataObject) -> None:
    """What would be nothing but digits is written in decimal; with a zero in front it is a text."""
    form = TextForm(alphabet)
    text = data.draw(st.from_regex(rf"[1-9][0-9]{{{form.width - 1}}}", fullmatch=True))
    value = _value(alphabet, text)
    assume(value <= LAST and int(text[1:]) > 0)
    assert form.read(text) == form.parse(text) == int(text)
    assert form.format(value) == str(value)
    assert (
        form.read("0" + text[1:]) == form.parse("0" + text[1:]) == _value(alphabet, "0" + text[1:])
    )
    assert TextForm(alphabet, "x_").parse(f"x_{text}") == value


def _value(alphabet: str, text: str) -> int:
    value = 0
    for digit in text:
        value = value * len(ALPHABETS[alphabet]) + ALPHABETS[alphabet].index(digit)
    return value


@given(forms, st.text())
@example(TextForm("base62"), "0" * 11)
@example(TextForm("crockford"), "-" * 50)
@example(TextForm("decimal", "a"), "a")
def test_a_text_is_read_as_one_id_or_refused(form: TextForm, text: str) -> None:
    """Whatever it is: an id that is written in a form that is read as the same, or InvalidId."""
    try:
        value = form.read(text)
    except InvalidId:
        return
    assert 1 <= value <= LAST
    assert form.read(form.format(value)) == value


@given(ids)
def test_case_means_nothing_where_the_form_says_so(value: int) -> None:
    """base36 and Crockford's are read in either case; base62 has both."""
    for alphabet in ("base36", "crockford"):
        form = TextForm(alphabet)
        assert form.parse(form.format(value).upper()) == value
        assert form.parse(form.format(value).lower()) == value


@given(ids, st.data())
def test_crockford_forgives_what_people_mistake(value: int, data: st.DataObject) -> None:
    """I and L are 1, O is 0, and hyphens anywhere are skipped."""
    form = TextForm("crockford")
    text = form.format(value)
    assume(not (text.isdigit() and text[0] != "0"))  # such an id is written in decimal
    typed = "".join(data.draw(st.sampled_from({"0": "0Oo", "1": "1IiLl"}.get(c, c))) for c in text)
    cut = data.draw(st.integers(0, len(typed)))
    assert form.parse(f"{typed[:cut]}-{typed[cut:]}") == value


# --- pinned ---------------------------------------------------------------------

PINNED = [
    ("decimal", "", 1, "1"),
    ("decimal", "ord_", LAST, "ord_9223372036854775807"),
    ("base36", "", 1, "0000000000001"),
    ("base36", "", LAST, "1y2p0ij32e8e7"),
    ("base62", "ord_", 1, "ord_00000000001"),
    ("base62", "", LAST, "AzL8n0Y58m7"),
    ("base62", "", 249963840991657984, "0ISptawSkz2"),
    ("crockford", "", LAST, "7ZZZZZZZZZZZZ"),
    ("crockford", "", 32**5 + 18, "00000001000" + "0J"),
]


def test_the_texts_of_an_id_never_change() -> None:
    """They stand in other people's links and databases."""
    for alphabet, prefix, value, text in PINNED:
        form = TextForm(alphabet, prefix)
        assert (form.format(value), form.parse(text)) == (text, value)


# --- bad input ------------------------------------------------------------------

NO_IDS = (
    *(None, True, 1.0, 1.5, b"1", [], {}, object(), 0, -1, 2**63, 10**400),
    *("", " ", "\x00", "1\x00", "\ud800", "1\n", "١٢٣", "１２３", "²", "😀"),
    *("0", "-1", "+1", "1.0", "1e3", "0x1f", "1_000", "1,000", "ord-1", "9223372036854775808"),
)


def test_what_is_no_id_is_refused() -> None:
    """With the one error there is for it, in every form, with and without a prefix."""
    for alphabet in ALPHABETS:
        for form in (TextForm(alphabet), TextForm(alphabet, "ord_")):
            for value in NO_IDS:
                refused(InvalidId, form.read, value)


def test_ten_megabytes_are_refused() -> None:
    """Whatever they are made of; the message doesn't hold them."""
    for character in ("9", "z", "-", "😀", "\x00"):
        text = character * 10_000_000
        for alphabet in ALPHABETS:
            with pytest.raises(InvalidId) as error:
                TextForm(alphabet).read(text)
            assert len(str(error.value)) < 500


def test_leading_zeros_make_no_second_text() -> None:
    """There is one text of an id: a digit more or less is none."""
    for alphabet in ALPHABETS:
        form = TextForm(alphabet, "x_")
        refused(InvalidId, form.parse, form.format(7).replace("x_", "x_0"))
        refused(InvalidId, form.read, "007")


def test_a_text_past_the_last_id_is_refused() -> None:
    """The width has room for more than 63 bits."""
    for alphabet in ("base36", "base62", "crockford"):
        form = TextForm(alphabet)
        refused(InvalidId, form.parse, ALPHABETS[alphabet][-1] * form.width, match=r"2\*\*63")


def test_another_prefix_is_refused() -> None:
    """An order's id is none of a customer's."""
    order, customer = TextForm("base62", "ord_"), TextForm("base62", "cus_")
    for text in (order.format(5), "ORD_00000000005", "00000000005x", "ord_", "ord_ord_00000000005"):
        refused(InvalidId, customer.read, text)


def test_only_ids_are_written() -> None:
    """What could not be read again is not written."""
    for value in (0, -1, 2**63, True, 1.0, "1", None):
        refused(InvalidId, TextForm("base62").format, value)


def test_an_impossible_form_is_refused() -> None:
    """The message names the alphabets that there are; no prefix needs escaping anywhere."""
    for alphabet in ("", "BASE62", "base64", None, 62, ["base62"]):
        refused(ConfigurationError, TextForm, alphabet, match="crockford")
    long = "a" * (MAX_PREFIX_LENGTH + 1)
    for prefix in ("1a", "_a", "-", "a b", "ä_", "a/", "a\n", long, None, 5):
        refused(ConfigurationError, TextForm, "base62", prefix, match="prefix")


def test_forms_are_values() -> None:
    """Equal, hashable, and sent between processes."""
    form = TextForm("base62", "ord_")
    assert pickle.loads(pickle.dumps(form)) == form == TextForm("base62", "ord_")
    assert len({form, TextForm("base62", "ord_"), DECIMAL}) == 2
    assert DECIMAL.is_plain
    assert not TextForm("decimal", "a").is_plain
