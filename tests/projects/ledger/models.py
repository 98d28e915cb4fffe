"""Models whose rows other packages keep the history of."""

from __future__ import annotations

import pghistory
from django.db import models
from simple_history.models import HistoricalRecords

from django_idgen.fields import SegmentIdField, SnowflakeAutoField, SnowflakeField


class GiftCard(models.Model):
    id = SegmentIdField(primary_key=True, scramble=True, prefix="gift_")
    public_id = SnowflakeField(null=True, unique=True)
    name = models.CharField(max_length=20)
    history = HistoricalRecords(history_user_id_field=models.IntegerField(null=True))


@pghistory.track()
class Ticket(models.Model):
    id = SnowflakeAutoField(primary_key=True)
    card = models.ForeignKey(GiftCard, on_delete=models.CASCADE)
    history = HistoricalRecords(history_user_id_field=models.IntegerField(null=True))


@pghistory.track()
class Parcel(models.Model):
    id = SegmentIdField(primary_key=True, scramble=True, prefix="parcel_")
    label = SnowflakeField(null=True, unique=True)


class Numbered(models.Model):
    number = SegmentIdField(unique=True)

    class Meta:
        abstract = True


class Invoice(Numbered):
    """A field of an abstract model is this model's own."""


class CreditNote(Invoice):
    """Multi-table inheritance copies no field."""

    reason = models.CharField(max_length=20)


class Receipt(Numbered):
    """Another model with the fields of the abstract one."""
