"""What stands in the way of another type of key, and what goes along with it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import models
from django.db.models.functions import Lower, Upper

from django_idgen.contrib.adopt.tables import _naming

Q = models.Q
NAMED: dict[str, Any] = {
    "a field": models.Index(fields=["line", "order"], name="x"),
    "its column": models.Index(fields=["order_id"], name="x"),
    "descending": models.Index(fields=["-order"], name="x"),
    "included": models.Index(fields=["line"], include=["order"], name="x"),
    "in a condition": models.Index(fields=["line"], condition=Q(order=None), name="x"),
    "in an expression": models.Index(Lower("order"), name="x"),
    "deep in an expression": models.Index(Upper(Lower("order")).desc(), name="x"),
    "unique": models.UniqueConstraint(fields=["line", "order"], name="x"),
    "unique, if": models.UniqueConstraint(fields=["line"], condition=~Q(order=1), name="x"),
    "unique, with": models.UniqueConstraint(fields=["line"], include=["order"], name="x"),
    "unique, of": models.UniqueConstraint(Lower("order"), name="x"),
    "checked": models.CheckConstraint(condition=Q(line=1) | Q(order__gt=1), name="x"),
    "compared": models.CheckConstraint(condition=Q(line__gt=models.F("order")), name="x"),
}
OTHERS: list[Any] = [
    models.Index(fields=["line", "orders"], name="order"),
    models.Index(Lower("reorder"), name="x"),
    models.UniqueConstraint(fields=["line"], condition=Q(line="order"), name="x"),
    models.CheckConstraint(condition=Q(line="order"), name="x"),
]


@pytest.mark.parametrize("how", NAMED)
def test_what_names_a_field_is_found(how: str) -> None:
    """An index or a constraint, wherever it names it; MySQL drops no column under one."""
    assert list(_naming({"order", "order_id"}, *OTHERS, NAMED[how])) == [NAMED[how]]


def test_an_exclusion_that_names_a_field_is_found() -> None:
    """PostgreSQL's constraints have pairs of an expression and an operator."""
    module = pytest.importorskip("django.contrib.postgres.constraints")
    pair = ("line", "=")
    for expressions, options, is_named in (
        ([pair, ("order", "=")], {}, True),
        ([(models.F("order"), "=")], {}, True),
        ([pair], {"condition": Q(order=1)}, True),
        ([pair], {"include": ["order"]}, True),
        ([pair], {}, False),
    ):
        part = module.ExclusionConstraint(name="order", expressions=expressions, **options)
        assert list(_naming({"order"}, part)) == [part] * is_named, part
