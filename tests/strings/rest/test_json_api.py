"""djangorestframework-jsonapi: texts in resources, relationships and links (hazard 109)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import include, path
from rest_framework import relations as plain
from rest_framework import routers
from rest_framework.response import Response
from rest_framework.test import APIClient
from rest_framework_json_api import parsers, relations, renderers, serializers, views

from django_idgen.strings import json_api
from django_idgen.strings.registration import register
from tests.app.models import GiftCard, Line, Order, Redemption

pytestmark = pytest.mark.django_db
JSON_API = "application/vnd.api+json"


class OpenView:
    renderer_classes = (renderers.JSONRenderer,)
    parser_classes = (parsers.JSONParser,)
    permission_classes = ()
    authentication_classes = ()


class CardSerializer(serializers.ModelSerializer):
    """Without ``id`` among its fields, as the library's documentation has it."""

    class Meta:
        model = GiftCard
        fields = ("note",)


class UseSerializer(serializers.ModelSerializer):
    plain_card = plain.PrimaryKeyRelatedField(source="card", read_only=True)
    plain_others = plain.PrimaryKeyRelatedField(source="others", read_only=True, many=True)
    found_card = relations.SerializerMethodResourceRelatedField(
        model=GiftCard, read_only=True, method_name="get_card"
    )
    included_serializers = {"card": CardSerializer}  # noqa: RUF012

    class Meta:
        model = Redemption
        fields = ("card", "others", "plain_card", "plain_others", "found_card")
        extra_kwargs = {"others": {"required": False}}  # noqa: RUF012

    def get_card(self, use: Redemption) -> GiftCard:
        return use.card


class LinkedSerializer(serializers.ModelSerializer):
    redemptions = relations.HyperlinkedRelatedField(
        read_only=True, many=True, related_link_view_name="card-related"
    )

    class Meta:
        model = GiftCard
        fields = ("redemptions",)


class LineSerializer(serializers.ModelSerializer):
    class Meta:
        model = Line
        fields = ("order",)


class Cards(OpenView, views.ModelViewSet):
    queryset = GiftCard.objects.all()
    serializer_class = CardSerializer


class Linked(Cards):
    serializer_class = LinkedSerializer


class Uses(OpenView, views.ModelViewSet):
    queryset = Redemption.objects.all()
    serializer_class = UseSerializer


class Lines(OpenView, views.ModelViewSet):
    queryset = Line.objects.all()
    serializer_class = LineSerializer


class UseRelationships(OpenView, views.RelationshipView):
    queryset = Redemption.objects.all()


router = routers.SimpleRouter()
for name, kind in {"cards": Cards, "linked": Linked, "uses": Uses, "lines": Lines}.items():
    router.register(name, kind, name)


def related(request: Any, pk: str, related_field: str) -> Response:
    raise AssertionError  # only its address is of interest


urlpatterns = [
    path("cards/<str:pk>/<related_field>/", related, name="card-related"),
    path("uses/<pk>/relationships/<related_field>/", UseRelationships.as_view()),
    path("", include(router.urls)),
]


@pytest.fixture(autouse=True)
def registered(settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    register("rest_framework_json_api")
    yield
    json_api.HOOKS.release()


@pytest.fixture
def card() -> GiftCard:
    return GiftCard.objects.create(note="tea")


@pytest.fixture
def identifier(card: GiftCard) -> dict[str, str]:
    return {"type": "GiftCard", "id": text_of(card)}


@pytest.fixture
def api() -> APIClient:
    return APIClient()


def text_of(card: GiftCard) -> str:
    text: str = card.get_id_display()  # type: ignore[attr-defined]
    return text


def test_a_resource_is_named_by_its_text(api: APIClient, card: GiftCard) -> None:
    """In lists, alone, when it is made, and when it is changed by what was sent."""
    text = text_of(card)
    assert [each["id"] for each in api.get("/cards/").json()["data"]] == [text]
    sent = api.get(f"/cards/{text}/").json()
    assert sent["data"]["id"] == text
    sent["data"]["attributes"]["note"] = "more tea"
    changed = api.patch(f"/cards/{text}/", json.dumps(sent), content_type=JSON_API)
    assert changed.json()["data"] == sent["data"]
    body = {"data": {"type": "GiftCard", "attributes": {"note": "new"}}}
    made = api.post("/cards/", json.dumps(body), content_type=JSON_API).json()["data"]
    assert made["id"] == text_of(GiftCard.objects.get(note="new"))
    assert api.get(f"/cards/{card.pk}/").status_code == 404


def test_relationships_are_named_as_their_resources(
    api: APIClient, card: GiftCard, identifier: dict[str, str]
) -> None:
    """By fields of either library, one or many, by a method, and among what is included."""
    use = Redemption.objects.create(card=card)
    use.others.add(card)
    answer = api.get(f"/uses/{use.pk}/?include=card").json()
    shown = {name: each["data"] for name, each in answer["data"]["relationships"].items()}
    assert [each.pop("id") for each in (shown["plain_card"], shown["found_card"])] == [
        identifier["id"]
    ] * 2
    assert shown["card"] == identifier
    assert shown["others"] == [identifier]
    assert [each["id"] for each in shown["plain_others"]] == [identifier["id"]]
    assert [each["id"] for each in answer["included"]] == [identifier["id"]]
    assert f'"{card.pk}"' not in json.dumps(answer).replace(f'"id": "{use.pk}"', "")


def test_a_key_that_was_set_as_text_stays(card: GiftCard, identifier: dict[str, str]) -> None:
    """An instance may hold what came in, until it is read again."""
    use = Redemption(pk=1, card_id=identifier["id"])
    one = UseSerializer(use)
    shown = {"plain_card": identifier["id"]}
    found = renderers.JSONRenderer.extract_relationships(
        {"plain_card": one.fields["plain_card"]}, shown, use
    )
    assert found["plain_card"]["data"]["id"] == identifier["id"]


def test_what_was_sent_can_be_sent_back(
    api: APIClient, card: GiftCard, identifier: dict[str, str]
) -> None:
    """The number of a scrambled key is refused."""

    def post(one: dict[str, str]) -> int:
        body = {"data": {"type": "Redemption", "relationships": {"card": {"data": one}}}}
        return api.post("/uses/", json.dumps(body), content_type=JSON_API).status_code

    assert post(identifier) == 201
    assert post({**identifier, "id": str(card.pk)}) == 400
    assert Redemption.objects.get().card == card


def test_views_of_relationships_write_and_read_texts(
    api: APIClient, card: GiftCard, identifier: dict[str, str]
) -> None:
    use = Redemption.objects.create(card=card)
    url = f"/uses/{use.pk}/relationships"

    def post(one: dict[str, str]) -> Any:
        return api.post(f"{url}/others/", json.dumps({"data": [one]}), content_type=JSON_API)

    assert api.get(f"{url}/card/").json()["data"] == identifier
    assert post(identifier).json()["data"] == [identifier]
    assert post({**identifier, "id": str(card.pk)}).status_code == 400
    assert list(use.others.all()) == [card]


def test_links_hold_texts(api: APIClient, card: GiftCard) -> None:
    found = api.get(f"/linked/{text_of(card)}/").json()["data"]["relationships"]["redemptions"]
    assert found["links"]["related"].endswith(f"/cards/{text_of(card)}/redemptions/")


def test_ids_in_decimal_and_other_keys_stay(api: APIClient) -> None:
    """A snowflake is its digits, a string; a key of Django's is as it was."""
    line = Line.objects.create(order=Order.objects.create())
    found = api.get(f"/lines/{line.pk}/").json()["data"]
    assert found["id"] == str(line.pk)
    assert found["relationships"]["order"]["data"]["id"] == str(line.order_id)
