"""graphene-django: ids are texts of type ID, out and in (hazard 109)."""

from __future__ import annotations

import asyncio
from typing import Any

import graphene
import pytest
from graphene import relay
from graphene_django import DjangoObjectType
from graphene_django.converter import convert_django_field

from django_idgen.strings.registration import register
from tests.app.models import GiftCard, Order, Purchase, Redemption

pytestmark = pytest.mark.django_db
register("graphene_django")


class CardType(DjangoObjectType):
    class Meta:
        model = GiftCard
        fields = ("id", "note")
        name = "Card"


class UseType(DjangoObjectType):
    class Meta:
        model = Redemption
        fields = ("id", "card")
        name = "Use"


class OrderType(DjangoObjectType):
    class Meta:
        model = Order
        fields = ("id",)
        name = "Order"


class CardNode(DjangoObjectType):
    class Meta:
        model = GiftCard
        fields = ("note",)
        interfaces = (relay.Node,)
        name = "CardNode"
        skip_registry = True


class StarredCard(DjangoObjectType):
    class Meta:
        model = GiftCard
        fields = ("id",)
        name = "Starred"
        skip_registry = True

    def resolve_id(self, info: Any) -> str:
        return "*"


class Query(graphene.ObjectType):
    card = graphene.Field(CardType, pk=graphene.ID())
    cards = graphene.List(CardType)
    use = graphene.Field(UseType)
    order = graphene.Field(OrderType)
    node = relay.Node.Field()
    first = graphene.Field(CardNode)
    starred = graphene.Field(StarredCard)

    def resolve_card(self, info: Any, pk: str) -> GiftCard:
        return GiftCard.objects.get(pk=pk)

    def resolve_cards(self, info: Any) -> Any:
        return GiftCard.objects.all()

    def resolve_use(self, info: Any) -> Any:
        return Redemption.objects.get()

    def resolve_order(self, info: Any) -> Any:
        return Order.objects.get()

    def resolve_first(self, info: Any) -> Any:
        return GiftCard.objects.first()

    resolve_starred = resolve_first


schema = graphene.Schema(query=Query, types=[CardNode])


def ask(query: str) -> Any:
    answer = schema.execute(query)
    assert answer.errors is None, answer.errors
    return answer.data


@pytest.fixture
def card() -> GiftCard:
    return GiftCard.objects.create(note="tea")


def text_of(card: GiftCard) -> str:
    text: str = card.get_id_display()  # type: ignore[attr-defined]
    return text


def test_keys_are_texts(card: GiftCard) -> None:
    """Alone, in lists and by relations; what was sent finds the row again."""
    Redemption.objects.create(card=card)
    text = text_of(card)
    assert ask(f'{{ card(pk: "{text}") {{ id note }} }}')["card"] == {"id": text, "note": "tea"}
    assert ask("{ cards { id } }")["cards"] == [{"id": text}]
    assert ask("{ use { card { id } } }")["use"]["card"] == {"id": text}


def test_a_snowflake_is_its_digits() -> None:
    """A string: JavaScript reads a number of its size as another one."""
    order = Order.objects.create()
    assert ask("{ order { id } }")["order"] == {"id": str(order.pk)}
    assert "type Order {\n  id: ID!\n}" in str(schema)


def test_a_global_id_holds_the_text(card: GiftCard) -> None:
    """Its base64 is no secret: a number in it could be counted."""
    found = ask("{ first { id } }")["first"]["id"]
    assert relay.Node.resolve_global_id(None, found) == ("CardNode", text_of(card))
    again = ask(f'{{ node(id: "{found}") {{ id ... on CardNode {{ id }} }} }}')["node"]
    assert again == {"id": found}


def test_a_resolver_of_the_users_own_is_kept(card: GiftCard) -> None:
    assert ask("{ starred { id } }")["starred"] == {"id": "*"}


def test_an_id_off_the_key_may_be_null() -> None:
    """It is required in the schema only if its column is."""
    assert convert_django_field(Purchase._meta.get_field("stamp")).type is graphene.ID
    assert isinstance(convert_django_field(GiftCard._meta.pk).type, graphene.NonNull)


def test_a_coroutine_may_resolve_an_id(card: GiftCard) -> None:
    """Its number becomes the text, too."""

    class Later(DjangoObjectType):
        class Meta:
            model = GiftCard
            fields = ("id",)
            skip_registry = True

        async def resolve_id(self, info: Any) -> int:
            return card.pk

    class Asked(graphene.ObjectType):
        later = graphene.Field(Later)

        def resolve_later(self, info: Any) -> Any:
            return card

    async def ask() -> Any:
        return await graphene.Schema(query=Asked).execute_async("{ later { id } }")

    assert asyncio.run(ask()).data == {"later": {"id": text_of(card)}}
