"""Ids that outsiders can't count: texts go out, texts alone come in; inside it is a number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django import forms
from django.core import serializers as fixtures
from django.core.management import call_command
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.test import Client
from django.urls import include, path, register_converter, reverse
from ninja import ModelSchema, NinjaAPI
from ninja.testing import TestClient
from rest_framework import routers, serializers
from rest_framework.test import APIClient

from django_idgen.core.errors import InvalidId
from django_idgen.fields.converters import converter_for
from django_idgen.fields.forms import IdFormField, IdModelChoiceField, IdModelMultipleChoiceField
from django_idgen.strings.ninja import id_type
from django_idgen.strings.registration import register
from tests.app.models import GiftCard, Redemption
from tests.strings.rest.shop_api import serializer, viewset

pytestmark = pytest.mark.django_db

register("ninja")
register_converter(converter_for(GiftCard), "gift_card")


class RedemptionSerializer(serializers.ModelSerializer):
    link = serializers.HyperlinkedRelatedField(
        source="card", view_name="gift-detail", queryset=GiftCard.objects.all(), required=False
    )

    class Meta:
        model = Redemption
        fields = ("card", "card_id", "others", "link")
        extra_kwargs = {"card": {"required": False}, "others": {"required": False}}  # noqa: RUF012


class GiftOut(ModelSchema):
    class Meta:
        model = GiftCard
        fields = ("id", "note")


ninja = NinjaAPI(urls_namespace="scrambled")


@ninja.get("/gifts/{card_id}", response=GiftOut)
def gift(request: HttpRequest, card_id: id_type(GiftCard)) -> GiftCard:  # type: ignore[valid-type]
    return get_object_or_404(GiftCard, pk=card_id)


def shown(request: HttpRequest, pk: int) -> JsonResponse:
    return JsonResponse({"pk": pk})


GIFT_CARD = serializer(GiftCard, ["id", "note", "redemptions"], read_only_fields=("redemptions",))
router = routers.DefaultRouter()
router.register("gifts", viewset(GIFT_CARD, {"id": ["exact", "in"]}), "gift")
router.register("uses", viewset(RedemptionSerializer, ["card", "others"]), "use")

urlpatterns = [
    path("admin/", include("tests.app.urls")),
    path("cards/<gift_card:pk>/", shown, name="shown"),
    path("", include(router.urls)),
]


@pytest.fixture(autouse=True)
def urls(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def api() -> APIClient:
    return APIClient()


@pytest.fixture
def card() -> GiftCard:
    return GiftCard.objects.create(note="tea")


def text_of(card: GiftCard) -> str:
    text: str = card.get_id_display()  # type: ignore[attr-defined]
    return text


def test_the_column_and_python_have_the_number(card: GiftCard) -> None:
    """Joins, sorting and a generator's speed are those of any integer."""
    assert type(card.pk) is int
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM app_giftcard")
        assert cursor.fetchall() == [(card.pk,)]
    assert text_of(card).startswith("gift_A")
    assert GiftCard.objects.get(pk=text_of(card)) == card


def test_an_api_writes_texts(api: APIClient, card: GiftCard) -> None:
    """The row's own id, keys to it and links: no number of it is in the answer."""
    use = Redemption.objects.create(card=card)
    use.others.add(card)
    assert api.get(f"/gifts/{text_of(card)}/").json()["id"] == text_of(card)
    found = api.get("/uses/").json()["results"][0]
    assert found["card"] == found["card_id"] == text_of(card)
    assert found["others"] == [text_of(card)]
    assert found["link"].endswith(f"/gifts/{text_of(card)}/")


def test_an_api_finds_no_row_by_its_number(api: APIClient, card: GiftCard) -> None:
    """By URL it is not found; in a body or a filter it is refused with the way out."""
    assert api.get(f"/gifts/{card.pk}/").status_code == 404
    assert api.delete(f"/gifts/{card.pk}/").status_code == 404
    for number in (card.pk, str(card.pk)):
        refused = api.post("/uses/", {"card": number}, format="json")
        assert refused.status_code == 400
        assert "give the text of the id" in str(refused.json())
        assert api.post("/uses/", {"others": [number]}, format="json").status_code == 400
    assert api.post("/uses/", {"link": f"/gifts/{card.pk}/"}, format="json").status_code == 400
    for query in (f"/gifts/?id={card.pk}", f"/gifts/?id__in={card.pk}", f"/uses/?card={card.pk}"):
        assert api.get(query).status_code == 400, query


def test_an_api_reads_texts(api: APIClient, card: GiftCard) -> None:
    text = text_of(card)
    for body in ({"card": text, "others": [text]}, {"link": f"/gifts/{text}/"}):
        assert api.post("/uses/", body, format="json").status_code == 201, body
    assert Redemption.objects.filter(card=card).count() == 2
    for query in (f"/gifts/?id={text}", f"/gifts/?id__in={text}", f"/uses/?others={text}"):
        assert len(api.get(query).json()["results"]) == 1, query


def test_ninja_reads_and_writes_texts_alone(card: GiftCard) -> None:
    client = TestClient(ninja)
    assert client.get(f"/gifts/{text_of(card)}").json() == {"id": text_of(card), "note": "tea"}
    assert client.get(f"/gifts/{card.pk}").status_code == 422


def test_urls_have_texts_alone(client: Client, card: GiftCard) -> None:
    address = reverse("shown", args=[card.pk])
    assert address == f"/cards/{text_of(card)}/"
    assert client.get(address).json() == {"pk": card.pk}
    assert client.get(f"/cards/{card.pk}/").status_code == 404


def test_forms_write_texts_and_refuse_numbers(card: GiftCard) -> None:
    """In options, in what is typed, and in what was chosen before."""

    class Use(forms.Form):
        card = IdModelChoiceField(GiftCard.objects.all())
        others = IdModelMultipleChoiceField(GiftCard.objects.all(), required=False)
        typed = IdFormField(GiftCard, required=False)

    text = text_of(card)
    start = {"card": card.pk, "others": [card.pk], "typed": card.pk}
    page = str(Use(initial=start))
    assert page.count(f'value="{text}"') == 3
    assert f'value="{card.pk}"' not in page
    same = Use({"card": text, "others": [text], "typed": text}, initial=start)
    assert same.is_valid()
    assert not same.has_changed()
    assert (same.cleaned_data["card"], same.cleaned_data["typed"]) == (card, card.pk)
    assert list(same.cleaned_data["others"]) == [card]
    number = str(card.pk)
    wrong = Use({"card": number, "others": [number], "typed": number}, initial=start)
    assert wrong.has_changed()
    assert set(wrong.errors) == {"card", "others", "typed"}


def test_staff_may_use_the_number(admin_client: Client, card: GiftCard) -> None:
    """Pages of the admin show the text, and find a row by either."""
    for found in (card.pk, text_of(card)):
        assert admin_client.get(f"/admin/admin/app/giftcard/{found}/change/").status_code == 200
        listed = admin_client.get("/admin/admin/app/giftcard/", {"q": found}).content.decode()
        assert text_of(card) in listed
    sent = {"card": str(card.pk)}
    assert admin_client.post("/admin/admin/app/redemption/add/", sent).status_code == 302


def test_fixtures_and_sessions_hold_the_number(card: GiftCard) -> None:
    """They outlive keys, and are read where other keys are: a text would name another row."""
    document = fixtures.serialize("json", [card])
    assert json.loads(document)[0]["pk"] == card.pk
    assert next(iter(fixtures.deserialize("json", document))).object == card


def test_a_new_key_writes_and_the_old_one_is_read(settings: Any, card: GiftCard) -> None:
    """While the process runs, too."""
    before = text_of(card)
    keys = settings.IDGEN["SCRAMBLE_KEYS"]
    settings.IDGEN = {"SCRAMBLE_KEYS": {**keys, "B": "another key of gift cards"}}
    assert text_of(card).startswith("gift_B")
    assert GiftCard.objects.get(pk=before) == card
    settings.IDGEN = {"SCRAMBLE_KEYS": {"B": "another key of gift cards"}}
    with pytest.raises(InvalidId, match="key 'A', which is not known"):
        GiftCard._meta.pk.text.read(before)  # type: ignore[attr-defined]


def test_staff_have_a_text_read_at_the_console(card: GiftCard, capsys: Any) -> None:
    call_command("idgen_decode", text_of(card), "--json")
    assert json.loads(capsys.readouterr().out)["readings"][0]["id"] == str(card.pk)
