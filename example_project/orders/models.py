"""Three kinds of ids: snowflakes, small numbers, and numbers that outsiders can't count."""

from __future__ import annotations

from typing import Any

from django.db import models

from django_idgen import generators
from django_idgen.fields import SegmentIdField, SnowflakeField


class Customer(models.Model):
    """The column holds 1, 2, 3. Outsiders see texts such as ``cus_AQ3V…``, and can't count."""

    id = SegmentIdField(primary_key=True, tag="customer", scramble=True, prefix="cus_")
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """Its id says when it was made, and by which worker id."""

    id = SnowflakeField(primary_key=True)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")

    def __str__(self) -> str:
        return f"Order {self.pk}"

    @property
    def parts(self) -> Any:
        """The time, worker id and sequence in the id."""
        return generators["default"].decode(self.pk)


class OrderLine(models.Model):
    """It names no key, so the app's ``default_auto_field`` gives it a snowflake."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    article = models.CharField(max_length=100)
    quantity = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return f"{self.quantity} × {self.article}"


class Parcel(models.Model):
    """A small number for people to read, from the tag ``parcel``."""

    id = SegmentIdField(primary_key=True, tag="parcel")
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="parcels")
    grams = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"Parcel {self.pk}"
