"""One model for each way in which a project may use the fields."""

from __future__ import annotations

from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models

from django_idgen.fields import SegmentAutoField, SegmentIdField, SnowflakeField


class Tag(models.Model):
    """Its key is the app's default: ``SnowflakeAutoField``."""

    name = models.CharField(max_length=40)


class Order(models.Model):
    id = SnowflakeField(primary_key=True)
    note = models.CharField(max_length=40, blank=True)
    tags = models.ManyToManyField(Tag)
    labels = models.ManyToManyField(Tag, through="Labelling", related_name="labelled")
    comments = GenericRelation("Comment")


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


# --- for APIs: ids in a text form, and every way to refer to them ---------------


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


# --- ids that are written in text forms, and looked up by their creation --------


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
