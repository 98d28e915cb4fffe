"""One order with lines, keyed in three ways. Import it after the settings are made."""

from __future__ import annotations

from django.db import models

from django_idgen.fields import SnowflakeField

try:
    from uuid_utils.compat import uuid7
except ImportError:
    from uuid import uuid7  # type: ignore[attr-defined,no-redef]

__all__ = ["KEYED", "AutoOrder", "SnowflakeOrder", "UuidOrder"]


class Order(models.Model):
    customer = models.CharField(max_length=100)
    total = models.IntegerField()
    note = models.CharField(max_length=200)

    class Meta:
        abstract = True
        app_label = "idgen_benchmarks"


class Line(models.Model):
    article = models.CharField(max_length=100)
    quantity = models.IntegerField()

    class Meta:
        abstract = True
        app_label = "idgen_benchmarks"


class AutoOrder(Order):
    id = models.BigAutoField(primary_key=True)


class AutoLine(Line):
    id = models.BigAutoField(primary_key=True)
    order = models.ForeignKey(AutoOrder, models.CASCADE)


class SnowflakeOrder(Order):
    id = SnowflakeField(primary_key=True)


class SnowflakeLine(Line):
    id = SnowflakeField(primary_key=True)
    order = models.ForeignKey(SnowflakeOrder, models.CASCADE)


class UuidOrder(Order):
    id = models.UUIDField(primary_key=True, default=uuid7)


class UuidLine(Line):
    id = models.UUIDField(primary_key=True, default=uuid7)
    order = models.ForeignKey(UuidOrder, models.CASCADE)


KEYED = (
    (SnowflakeOrder, SnowflakeLine),
    (AutoOrder, AutoLine),
    (UuidOrder, UuidLine),
)
"""Ours first: the others are compared with it."""
