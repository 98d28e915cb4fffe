"""Models for APIs: ids in a text form, and every way to refer to them."""

from __future__ import annotations

from django.db import models

from django_idgen.fields import SegmentIdField, SnowflakeField


class Shipment(models.Model):
    id = SnowflakeField(primary_key=True, text_form="base62", prefix="shp_")
    order = models.ForeignKey("app.Order", on_delete=models.CASCADE, related_name="shipments")
    previous = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True)
    receipt = models.ForeignKey(
        "app.Receipt", on_delete=models.CASCADE, to_field="number", null=True, blank=True
    )
    watchers = models.ManyToManyField("app.Tag", blank=True, related_name="watched")

    def __str__(self) -> str:
        return f"to {self.order_id}"


class Leg(models.Model):
    shipment = models.ForeignKey(Shipment, on_delete=models.CASCADE, related_name="legs")
    place = models.CharField(max_length=40)
    # Generated, off the primary key, and part of a constraint.
    number = SegmentIdField(tag="legs")

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["shipment", "place"], name="leg_place"),
            models.UniqueConstraint(fields=["shipment", "number"], name="leg_number"),
        )


class Grade(models.Model):
    """Its key is one of a few: a choice, which no field of ours takes over."""

    id = SnowflakeField(primary_key=True, choices=[(1, "low"), (2, "high")])
