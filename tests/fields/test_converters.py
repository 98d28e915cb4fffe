"""Ids in URLs: any form of an id is found, anything else is 404."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import NoReverseMatch, path, register_converter, resolve, reverse
from django.urls.converters import REGISTERED_CONVERTERS
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.encoding import ALPHABETS, TextForm
from django_idgen.core.errors import ConfigurationError
from django_idgen.fields.converters import IdConverter, converter_for
from tests.app.models import Customer, Folder, Parcel, Purchase

LAST = 2**63 - 1
NAMES = {f"id_{alphabet}": TextForm(alphabet) for alphabet in ALPHABETS}
NAMES |= {f"id_{alphabet}_prefixed": TextForm(alphabet, "a-b_c") for alphabet in ALPHABETS}
ROUTES = ["id_plain", "id_customer", *NAMES]


def show(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse(f"{type(pk).__name__} {pk}")


def _register(name: str, converter: Any) -> None:
    if name not in REGISTERED_CONVERTERS:
        register_converter(converter, name)


_register("id_plain", IdConverter)
_register("id_customer", converter_for(Customer))
for _name, _form in NAMES.items():
    _register(_name, converter_for(_form))

urlpatterns = [path(f"{name}/<{name}:pk>/", show, name=name) for name in ROUTES]


@pytest.fixture(autouse=True, scope="module")
def _urls() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__):
        yield


@given(st.integers(1, LAST))
def test_a_url_leads_back_to_the_id(value: int) -> None:
    """``reverse()`` and ``resolve()`` are each other's opposite, in every form."""
    for name in ROUTES:
        url = reverse(name, args=[value])
        assert url.isascii()
        assert "%" not in url
        assert resolve(url).kwargs == {"pk": value}
        text = url.split("/")[2]
        assert reverse(name, kwargs={"pk": text}) == url


def test_a_view_is_given_an_int(client: Client) -> None:
    """Whichever form the URL had; and the URL that is made has the field's form."""
    assert client.get("/id_customer/cus_00000000005/").content == b"int 5"
    assert client.get("/id_customer/5/").content == b"int 5"
    assert client.get("/id_plain/5/").content == b"int 5"
    assert reverse("id_customer", args=["5"]) == "/id_customer/cus_00000000005/"


WRONG = [
    *("0", "05", "00000000005", "9223372036854775808", "9" * 5000, "-5", "5.0", "1e3"),
    *("%D9%A1", "%F0%9F%98%80", "5%00", "5%0A", "%20"),
    *("ord_00000000005", "CUS_00000000005", "cus_5", "cus_0000000000!", "cus_zzzzzzzzzzz", "cus_"),
]


def test_what_is_no_id_is_404(client: Client) -> None:
    """Leading zeros, other alphabets, another prefix, what no bigint holds."""
    for text in WRONG:
        for name in ("id_plain", "id_customer"):
            assert client.get(f"/{name}/{text}/").status_code == 404, text


@given(st.text())
def test_any_text_is_an_id_or_404(text: str) -> None:
    """Never another error."""
    for name in ROUTES:
        try:
            found = resolve(f"/{name}/{text}/").kwargs["pk"]
        except Http404:
            continue
        assert 1 <= found <= LAST


def test_no_url_is_made_of_what_is_no_id() -> None:
    """It could not be read again."""
    for value in (0, -1, 2**63, True, None, 1.0, "x", "cus_5", ""):
        with pytest.raises(NoReverseMatch):
            reverse("id_customer", args=[value])


def test_a_converter_of_a_model_a_field_or_a_relation() -> None:
    """A model stands for its key, a relation for what it points at."""
    customer = Purchase._meta.get_field("customer")
    for target in (Customer, Customer._meta.pk, customer):
        assert converter_for(target).form == TextForm("base62", "cus_")
    assert converter_for(Purchase).form == TextForm("crockford")
    assert converter_for(Parcel).form == TextForm()  # its key is a relation to an order


def test_a_field_of_another_kind_is_refused() -> None:
    """The message says what to give instead."""
    with pytest.raises(ConfigurationError, match=r"TextForm\('base62'"):
        converter_for(Folder._meta.get_field("name"))
