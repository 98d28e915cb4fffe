"""strawberry-django: ids are texts of type ID, out and in (hazard 109)."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import Any

import pytest
import strawberry
import strawberry_django
from asgiref.sync import sync_to_async
from strawberry import auto, relay
from strawberry_django.relay import DjangoCursorConnection

from django_idgen.strings.registration import register
from tests.app.models import GiftCard, Order, Purchase, Redemption

pytestmark = pytest.mark.django_db
register("strawberry_django")


@strawberry_django.type(GiftCard)
class Card:
    id: auto
    note: auto
    pk: strawberry.ID


@strawberry_django.type(Redemption)
class Use:
    id: auto
    card: Card
    card_id: strawberry.ID


@strawberry_django.type(Redemption)
class PlainUse:
    card: auto
    others: auto
    far: strawberry.ID = strawberry_django.field(field_name="card__id")

    @strawberry_django.field
    def card_id(self) -> strawberry.ID:
        return self.card_id  # type: ignore[return-value]


@strawberry_django.type(Redemption)
class CountedUse:
    @strawberry_django.field
    def others(self) -> int:
        return self.others.count()  # type: ignore[attr-defined]


@strawberry_django.type(Order)
class OrderType:
    id: auto


@strawberry_django.type(Purchase)
class PurchaseType:
    stamp: auto


@strawberry_django.type(GiftCard)
class CardNode(relay.Node):
    note: auto


@strawberry_django.filter_type(GiftCard)
class CardFilter:
    id: auto


@strawberry.type
class Query:
    card: Card = strawberry_django.field()
    cards: list[Card] = strawberry_django.field(filters=CardFilter)
    uses: list[Use] = strawberry_django.field()
    orders: list[OrderType] = strawberry_django.field()
    nodes: list[CardNode] = strawberry_django.field()
    node: relay.Node = strawberry_django.node()
    some: list[CardNode] = strawberry_django.node()
    plain: list[PlainUse] = strawberry_django.field()
    counted: list[CountedUse] = strawberry_django.field()
    pages: DjangoCursorConnection[CardNode] = strawberry_django.connection()


schema = strawberry.Schema(query=Query, types=[CardNode, PurchaseType])


def ask(query: str) -> Any:
    answer = schema.execute_sync(query)
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
    assert ask(f'{{ card(pk: "{text}") {{ id pk }} }}')["card"] == {"id": text, "pk": text}
    assert ask(f'{{ cards(filters: {{id: "{text}"}}) {{ id }} }}')["cards"] == [{"id": text}]
    (use,) = ask("{ uses { cardId card { id } } }")["uses"]
    assert use == {"cardId": text, "card": {"id": text}}


def test_a_key_that_is_not_of_this_app_is_left(card: GiftCard) -> None:
    use = Redemption.objects.create(card=card)
    assert ask("{ uses { id } }")["uses"] == [{"id": str(use.pk)}]


def test_a_snowflake_is_its_digits() -> None:
    """A string: JavaScript reads a number of its size as another one. NULL stays null."""
    order = Order.objects.create()
    assert ask("{ orders { id } }")["orders"] == [{"id": str(order.pk)}]
    assert "type OrderType {\n  id: ID!\n}" in str(schema)
    assert "type PurchaseType {\n  stamp: ID\n}" in str(schema)


def test_a_global_id_holds_the_text(card: GiftCard) -> None:
    """Its base64 is no secret: a number in it could be counted."""
    (found,) = ask("{ nodes { id } }")["nodes"]
    known = relay.GlobalID.from_id(found["id"])
    assert (known.type_name, known.node_id) == ("CardNode", text_of(card))
    again = ask(f'{{ node(id: "{found["id"]}") {{ id }} }}')["node"]
    assert again == found


def test_several_global_ids_find_their_rows(card: GiftCard) -> None:
    """In the order that was asked for."""
    other = GiftCard.objects.create(note="cup")
    found = ask("{ nodes { id note } }")["nodes"]
    ids = [each["id"] for each in sorted(found, key=lambda each: each["note"])]
    again = ask(f'{{ some(ids: ["{ids[0]}", "{ids[1]}"]) {{ note }} }}')["some"]
    assert again == [{"note": other.note}, {"note": card.note}]


def test_no_number_of_a_scrambled_key_gets_out(card: GiftCard) -> None:
    """Of related rows without a type, along a path, from a resolver, in a cursor."""
    use = Redemption.objects.create(card=card)
    use.others.add(card)
    text = text_of(card)
    assert ask("{ plain { card { pk } others { pk } far cardId } }")["plain"] == [
        {"card": {"pk": text}, "others": [{"pk": text}], "far": text, "cardId": text}
    ]
    ((edge,),) = ask("{ pages { edges { cursor } } }")["pages"].values()
    assert text in b64decode(edge["cursor"]).decode()
    again = ask(f'{{ pages(after: "{edge["cursor"]}") {{ edges {{ cursor }} }} }}')
    assert again["pages"]["edges"] == []


def test_a_count_is_no_id(card: GiftCard) -> None:
    """A resolver may be named like a relation, and return another number."""
    Redemption.objects.create(card=card).others.add(card)
    assert ask("{ counted { others } }")["counted"] == [{"others": 1}]


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_gets_texts() -> None:
    """Also of a field that is loaded late."""

    async def run() -> Any:
        card = await sync_to_async(GiftCard.objects.create)(note="tea")
        answer = await schema.execute("{ cards { id } nodes { id } }")
        assert answer.errors is None, answer.errors
        assert answer.data is not None
        (node,) = answer.data["nodes"]
        assert relay.GlobalID.from_id(node["id"]).node_id == text_of(card)
        assert answer.data["cards"] == [{"id": text_of(card)}]

    asyncio.run(run())
