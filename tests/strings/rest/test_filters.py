"""django-filter: ids in query strings, in any form, and errors for what is none."""

from __future__ import annotations

from typing import Any

import pytest
from django_filters import FilterSet
from django_filters import filters as plain
from rest_framework.test import APIClient

from django_idgen import generators
from django_idgen.core.encoding import TextForm
from django_idgen.strings.filters import IdFilter
from tests.app.models import Leg, Line, Order, Receipt, Shipment, Tag
from tests.strings.rest.conftest import FAR, sent


@pytest.fixture
def rows(order: Order, tag: Tag) -> list[Shipment]:
    receipt = Receipt.objects.create(number=FAR + 6)
    first = Shipment.objects.create(pk=FAR + 10, order=order)
    second = Shipment.objects.create(
        pk=FAR + 11, order=Order.objects.create(), previous=first, receipt=receipt
    )
    second.watchers.add(tag)
    Leg.objects.create(shipment=second, place="Rome")
    return [first, second]


def found(api: APIClient, query: str) -> list[str]:
    return [row["id"] for row in sent(api.get(f"/shipments/?{query}"))["results"]]


def forms(shipment: Shipment) -> list[str]:
    return [str(shipment.pk), shipment.get_id_display()]


def test_by_id(api: APIClient, rows: list[Shipment]) -> None:
    """Digits or text; one, several, below, between."""
    first, second = (row.get_id_display() for row in rows)
    for text, digits in zip(forms(rows[0]), forms(rows[1]), strict=True):
        assert found(api, f"id={text}") == [first]
        assert found(api, f"id__in={text},{digits}") == [first, second]
        assert found(api, f"id__lt={digits}") == [first]
        assert found(api, f"id__range={text},{text}") == [first]
    assert found(api, f"id={FAR}") == []
    assert found(api, "id=") == [first, second]


def test_by_a_key(api: APIClient, rows: list[Shipment]) -> None:
    """Foreign keys, to another column, of many, reverse, and through them."""
    first, second = (row.get_id_display() for row in rows)
    leg = Leg.objects.get()
    for one, other in zip(forms(rows[0]), forms(rows[1]), strict=True):
        assert found(api, f"previous={one}") == [second]
        assert found(api, f"previous__id={one}") == [second]
        assert found(api, f"previous__id__in={one}") == [second]
        answer = sent(api.get(f"/orders/?shipments={one}"))
        assert [row["id"] for row in answer["results"]] == [str(FAR)]
        assert len(sent(api.get(f"/legs/?shipment={other}"))["results"]) == 1
    assert found(api, f"order={FAR}") == [first]
    assert found(api, f"receipt={FAR + 6}") == [second]
    assert found(api, f"watchers={FAR + 2}") == [second]
    assert found(api, f"legs={leg.pk}") == [second]
    assert found(api, "previous__isnull=true") == [first]
    assert len(sent(api.get(f"/legs/?number={leg.number}"))["results"]) == 1


def test_what_is_no_id(api: APIClient, rows: list[Shipment]) -> None:
    """400, and the parameter is named, also where Python reads such digits as 1."""
    Order.objects.create(pk=1)
    for value in (
        *("abc", "1.5", "0", "-1", "1e3", str(2**63), "shp_", "inv_1", "NaN"),
        *("%00", "%F0%9F%98%80", "%D9%A1", "9" * 5000),
    ):
        for name in ("id", "id__in", "id__lt", "id__range", "previous__id", "previous__id__in"):
            assert list(sent(api.get(f"/shipments/?{name}={value}"), 400)) == [name], value
        for name in ("order", "previous", "receipt", "watchers", "legs"):
            answer = api.get(f"/shipments/?{name}={value}")
            assert list(sent(answer, 400)) == [name], value
            assert len(answer.content) < 200
    # As for any field, a range needs two.
    assert list(sent(api.get("/shipments/?id__range=1"), 400)) == ["id__range"]


def test_a_declared_filter_goes_by_the_field(rows: list[Shipment]) -> None:
    """Without a word of its form, under a name of its own, and through a relation."""

    class Filters(FilterSet):
        before = IdFilter(field_name="previous__id")
        shipped = IdFilter(field_name="id", lookup_expr="gte")
        other = IdFilter(field_name="id", target=TextForm("base36", "x_"))
        count = plain.NumberFilter(field_name="id")

        class Meta:
            model = Shipment
            fields: Any = ()

    def matched(**data: Any) -> list[Shipment]:
        filters = Filters(data)
        assert filters.is_valid(), filters.errors
        return list(filters.qs.order_by("pk"))

    first, second = rows
    assert matched(before=first.get_id_display()) == [second]
    assert matched(shipped=second.get_id_display()) == [second]
    assert matched(count=str(first.pk)) == [first]
    assert not Filters({"other": first.get_id_display()}).is_valid()


def test_the_choice_of_null_remains(rows: list[Shipment]) -> None:
    """django-filter's own word for rows without one, in a choice of one and of many."""

    class Filters(FilterSet):
        one = plain.ModelChoiceFilter(
            field_name="previous", queryset=Shipment.objects.all(), null_label="none"
        )
        many = plain.ModelMultipleChoiceFilter(
            field_name="previous", queryset=Shipment.objects.all(), null_label="none"
        )

    text = rows[0].get_id_display()
    everything = Shipment.objects.all()
    assert list(Filters({"one": "null"}, everything).qs) == rows[:1]
    assert set(Filters({"many": ["null", text]}, everything).qs) == set(rows)


def test_the_plain_filter_set_picks_it_too(rows: list[Shipment]) -> None:
    """That of django-filter itself, for pages instead of APIs, with choices for people."""

    class Filters(FilterSet):
        class Meta:
            model = Shipment
            fields = ("id", "previous", "watchers")

    assert type(Filters.base_filters["id"]) is IdFilter
    page = str(Filters({"previous": rows[0].get_id_display()}).form)
    assert f'value="{rows[0].pk}"' in page
    filters = Filters({"watchers": [str(FAR + 2)]})
    assert list(filters.qs) == [rows[1]]


def test_by_the_moment_of_an_id(api: APIClient, db: None) -> None:
    """``id__created__gte`` and the like: a time in the query string, and errors for others."""
    decode = generators["default"].decode
    second = Order.objects.create()
    first = Order.objects.create(pk=second.pk - (86_400_000 << 22))  # the day before
    Line.objects.create(order=second)

    def found(**query: str) -> list[str]:
        answer = api.get("/orders/", query)
        return [row["id"] for row in sent(answer)["results"]]

    start, end = (decode(row.pk).created.isoformat() for row in (first, second))
    assert found(id__created__gte=end) == [str(second.pk)]
    assert found(id__created__lte=start) == [str(first.pk)]
    assert found(id__created__range=f"{start},{end}") == [str(first.pk), str(second.pk)]
    assert found(id__created__date=start[:10]) == [str(first.pk)]
    (row,) = sent(api.get("/lines/", {"order__id__created__gte": end}))["results"]
    assert row["order"] == str(second.pk)
    for value in ("yesterday", "2026-13-01", "1", "\x00"):
        for name in ("gte", "lte", "range", "date"):
            errors = sent(api.get("/orders/", {f"id__created__{name}": value}), 400)
            assert list(errors) == [f"id__created__{name}"]
