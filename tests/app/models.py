"""One model for each way in which a project may use the fields."""

from __future__ import annotations

from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models

from django_idgen.fields import SegmentAutoField, SegmentIdField, SnowflakeField
from tests.app.rest_models import Grade, Leg, Shipment
from tests.app.text_models import Bill, Customer, GiftCard, Purchase, Redemption, Sheet

__all__ = [
    "Bill",
    "Customer",
    "GiftCard",
    "Grade",
    "Leg",
    "Purchase",
    "Redemption",
    "Sheet",
    "Shipment",
]


class Tag(models.Model):
    """Its key is the app's default: ``SnowflakeAutoField``."""

    name = models.CharField(max_length=40)


class Order(models.Model):
    id = SnowflakeField(primary_key=True)
    note = models.CharField(max_length=40, blank=True)
    tags = models.ManyToManyField(Tag)
    labels = models.ManyToManyField(Tag, through="Labelling", related_name="labelled")
    comments = GenericRelation("Comment")


class RushOrder(Order):
    class Meta:
        proxy = True


class Line(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    text = models.CharField(max_length=40)


class Parcel(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE, primary_key=True)
    weight = models.IntegerField(default=0)


class Labelling(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    tag = models.ForeignKey(Tag, on_delete=models.CASCADE)


class Comment(models.Model):
    content_type = models.ForeignKey(ContentType, on_delete=models.CASCADE)
    object_id = models.BigIntegerField()
    about = GenericForeignKey()


class EagerOrder(models.Model):
    id = SnowflakeField(primary_key=True, eager=True)
    note = models.CharField(max_length=40, blank=True)


class Invoice(models.Model):
    id = SegmentIdField(primary_key=True)
    note = models.CharField(max_length=40, blank=True)


class Ticket(models.Model):
    id = SegmentIdField(primary_key=True, tag="tickets")


class Receipt(models.Model):
    """A number that isn't the key, beside a key that is no matter of ours."""

    id = models.BigAutoField(primary_key=True)
    number = SegmentIdField(tag="receipts", unique=True)
    stamp = SnowflakeField(unique=True)
    note = models.CharField(max_length=40, blank=True)


class Counter(models.Model):
    id = SegmentAutoField(primary_key=True)
    name = models.CharField(max_length=40, blank=True)


class Numbered(models.Model):
    id = SegmentIdField(primary_key=True)

    class Meta:
        abstract = True


class Voucher(Numbered):
    pass


class Coupon(Numbered):
    pass


class Vehicle(models.Model):
    id = SegmentIdField(primary_key=True)
    name = models.CharField(max_length=40, blank=True)


class Car(Vehicle):
    doors = models.IntegerField(default=4)


class Folder(models.Model):
    name = models.CharField(max_length=40)


class Document(models.Model):
    pk = models.CompositePrimaryKey("folder", "number")
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE)
    number = SegmentIdField(tag="documents")
    title = models.CharField(max_length=40, blank=True)
