"""What a pasted text is read as: everything it may mean, and nothing in silence."""

from __future__ import annotations

from contextlib import suppress
from time import process_time

import pytest
from django.apps import apps
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.encoding import ALPHABETS, TextForm
from django_idgen.core.errors import InvalidId
from django_idgen.core.segment import MAX_ID
from django_idgen.ops.decoding import spellings

NUMBER = 249_874_376_732_819_456
CUSTOMER = f"cus_{TextForm('base62').format(NUMBER)}"


def ids(text: object) -> list[int]:
    return [each.id for each in spellings(text)]


@pytest.mark.parametrize(
    "text",
    [
        NUMBER,
        str(NUMBER),
        f"  {NUMBER}\n",
        f"{NUMBER:,}",
        f"{NUMBER:_}",
        f"{NUMBER:,}".replace(",", "."),
        f"{NUMBER:,}".replace(",", "’"),
        f"{NUMBER:,}".replace(",", "\u202f"),
        f"{NUMBER:,}".replace(",", "\u00a0"),
        f"{NUMBER:,}".replace(",", "-"),
        "2,49,87,43,76,73,28,19,456",
        f"000{NUMBER}",
    ],
)
def test_a_number_is_read_however_it_is_pasted(text: object) -> None:
    """With separators, dashes, spaces around it, or filled up with zeros."""
    assert ids(text) == [NUMBER]


@given(number=st.integers(1, MAX_ID), alphabet=st.sampled_from(sorted(ALPHABETS)))
def test_what_a_field_writes_is_among_the_readings(number: int, alphabet: str) -> None:
    """Of any id, in every alphabet."""
    found = spellings(TextForm(alphabet).format(number))
    assert number in {each.id for each in found if each.form in (alphabet, "decimal")}


def test_a_prefix_names_the_fields() -> None:
    """Then it can be no other's."""
    (found,) = spellings(CUSTOMER)
    assert (found.id, found.form, found.prefix) == (NUMBER, "base62", "cus_")
    assert [field.model._meta.object_name for field in found.fields] == ["Customer"]
    assert found.is_named


def test_what_may_be_two_forms_is_read_as_both() -> None:
    """Thirteen digits of base36 may be Crockford's as well: the fields' own form is named."""
    found = {each.form: each for each in spellings("0000000000042")}
    assert {form: each.id for form, each in found.items()} == {
        "base36": 146,
        "crockford": 130,
        "decimal": 42,
    }
    assert "app.Bill.id" in found["base36"].why
    assert "app.Purchase.id" in found["crockford"].why
    assert [each.form for each in spellings("0000000000042", form="crockford")] == ["crockford"]


@pytest.mark.parametrize(
    ("given_text", "words"),
    [
        (None, "not nothing"),
        (True, "not a bool"),
        (1.5, "not a float"),
        (b"1", "not a bytes"),
        ("", "it is empty"),
        (" \n\t", "it is empty"),
        (0, "1 to 2**63 - 1"),
        (-5, "1 to 2**63 - 1"),
        (2**63, "1 to 2**63 - 1"),
        ("0", "1 to 2**63 - 1"),
        ("-5", "1 to 2**63 - 1"),
        ("−5", "1 to 2**63 - 1"),
        (str(2**63), "1 to 2**63 - 1"),
        (f"{2**63:,}", "1 to 2**63 - 1"),
        ("9" * 5000, "1 to 2**63 - 1"),
        ("1.5", "whole numbers"),
        ("0.500", "whole numbers"),
        ("1e18", "whole numbers"),
        ("0x10", "can't be read as decimal digits"),
        ("0x" + "f" * 16, "can't be read"),
        (f"see {NUMBER}", "can't be read"),
        (f"https://shop.example/orders/{NUMBER}/", "can't be read"),
        (f'{{"id": {NUMBER}}}', "can't be read"),
        ("zzzzzzzzzzz", "can't be read"),
        ("order", "prefix of this project (cus_, gift_, shp_)"),
        ("cus_0ISQ", "in base62 an id has 11 digits, not 4"),
        ("cus_0ISQUWhLy-a", "'-' is not a digit of base62"),
        ("2026-11-22", "can't be read"),
        ("4b7f0c1e-7a65-4c33-9d6a-ff00aa112233", "can't be read"),
        ("\ud800\x00", "can't be read"),
        ("x" * 20_000, "the limit is 10000"),
    ],
)
def test_nonsense_is_refused_in_clear_words(given_text: object, words: str) -> None:
    """Each with what is wrong about it, and no digits of a huge number."""
    with pytest.raises(InvalidId) as caught:
        spellings(given_text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_long_text_is_read_in_no_time() -> None:
    """Each character is looked at a few times, not thousands: nobody can hold a server up."""
    texts = "1" * 9999 + "x", "1" * 5000 + "." + "1" * 4998 + "x", "1,111" * 1999 + "x", "a " * 4999
    for text in texts:
        began = process_time()
        with suppress(InvalidId):
            spellings(text)
        assert process_time() - began < 5


def test_models_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may have hundreds of models."""
    asked = []

    def get_models() -> list[object]:
        asked.append(1)
        return []

    monkeypatch.setattr(apps, "get_models", get_models)
    with pytest.raises(InvalidId):
        spellings("no id")
    assert len(asked) == 1
