"""Models whose ids are written in text forms, and looked up by their creation."""

from __future__ import annotations

from django.db import models

from django_idgen.fields import SegmentIdField, SnowflakeField


class Customer(models.Model):
    id = SnowflakeField(primary_key=True, text_form="base62", prefix="cus_")
    name = models.CharField(max_length=40, blank=True)

    def __str__(self) -> str:
        return self.name


class Purchase(models.Model):
    id = SnowflakeField(primary_key=True, text_form="crockford")
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="purchases")
    note = models.CharField(max_length=40, blank=True)
    # Off the primary key, and NULL where an update() says so.
    stamp = SnowflakeField(null=True, unique=True)
    watchers = models.ManyToManyField(Customer, blank=True, related_name="watched")


class Bill(models.Model):
    id = SegmentIdField(primary_key=True, text_form="base36")
    paid_at = models.DateTimeField(null=True, blank=True)
    purchase = models.ForeignKey(Purchase, on_delete=models.CASCADE, null=True, blank=True)


class Sheet(models.Model):
    pk = models.CompositePrimaryKey("folder", "number")
    folder = models.ForeignKey("app.Folder", on_delete=models.CASCADE)
    number = SnowflakeField(unique=True)


class GiftCard(models.Model):
    """Its numbers are not for outsiders to count."""

    id = SegmentIdField(primary_key=True, tag="gift_cards", scramble=True, prefix="gift_")
    note = models.CharField(max_length=40, blank=True)


class Redemption(models.Model):
    card = models.ForeignKey(GiftCard, on_delete=models.CASCADE, related_name="redemptions")
    others = models.ManyToManyField(GiftCard, blank=True)
