"""Rows into PostgreSQL: our key against ``BigAutoField`` and a UUIDv7 key.

The three models differ in their key alone, and the code that saves them not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any

from .bars import Row, at_least, paired
from .project import own_database

ROUNDS = 101
CREATES = 40
BULK = 1000
BULKS = 1
FAMILIES = 15
CHILDREN = 10

Models = tuple[Any, Any]


def rows() -> Iterator[Row]:
    with own_database():
        from django.db import connection

        from .shop import KEYED

        with connection.schema_editor() as editor:
            for models in KEYED:
                for model in models:
                    editor.create_model(model)
        yield from _rows("create()", _create, 0.97, KEYED)
        yield from _rows("bulk_create(1000)", _bulk_create, 0.9, KEYED)
        yield from _rows("a parent with ten children", _family, 1.0, KEYED)


def _rows(
    what: str, save: Callable[[Models], None], bar: float, keyed: tuple[Models, ...]
) -> Iterator[Row]:
    for models in keyed:
        save(models)
    medians, ratios = paired([partial(_timed, save, models) for models in keyed], ROUNDS)
    for name, least, median, ratio in zip(
        ("BigAutoField", "a UUIDv7 key"), (bar, 0.98), medians[1:], ratios[1:], strict=True
    ):
        note = f"{medians[0] / 1e3:.0f} against {median / 1e3:.0f} µs a row"
        yield at_least(f"PostgreSQL {what}: speed, of {name}'s", least, ratio, note=note)


def _timed(save: Callable[[Models], None], models: Models) -> float:
    begun = perf_counter_ns()
    save(models)
    return (perf_counter_ns() - begun) / _ROWS[save]


def _create(models: Models) -> None:
    order, _ = models
    for number in range(CREATES):
        order.objects.create(customer="Ada Lovelace", total=number, note="leave at the door")


def _bulk_create(models: Models) -> None:
    order, _ = models
    for _ in range(BULKS):
        order.objects.bulk_create(
            order(customer="Ada Lovelace", total=number, note="leave at the door")
            for number in range(BULK)
        )


def _family(models: Models) -> None:
    from django.db.transaction import atomic

    # One by one, as formsets and nested serializers save them.
    order, line = models
    for number in range(FAMILIES):
        with atomic():
            parent = order.objects.create(customer="Ada Lovelace", total=number, note="")
            for part in range(CHILDREN):
                line.objects.create(order=parent, article="spanner", quantity=part)


_ROWS: dict[Callable[[Models], None], int] = {
    _create: CREATES,
    _bulk_create: BULK * BULKS,
    _family: FAMILIES * (1 + CHILDREN),
}
