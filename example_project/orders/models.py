"""Orders have snowflake ids, invoices have ids out of segments."""

from __future__ import annotations

from django.db import models

from django_idgen.fields import SegmentIdField, SnowflakeField


class Order(models.Model):
    """Its id says when it was made and by which worker, and nobody can count from it."""

    id = SnowflakeField(primary_key=True)
    customer = models.CharField(max_length=100)
    placed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"Order {self.pk} of {self.customer}"


class OrderLine(models.Model):
    """No key is named, so it is a snowflake by the app's ``default_auto_field``."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    article = models.CharField(max_length=100)
    quantity = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return f"{self.quantity} × {self.article}"


class Invoice(models.Model):
    """Small rising numbers, taken from the tag ``invoice`` a hundred at a time."""

    id = SegmentIdField(primary_key=True, tag="invoice")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="invoices")
    amount = models.DecimalField(max_digits=10, decimal_places=2)

    def __str__(self) -> str:
        return f"Invoice {self.pk}"
