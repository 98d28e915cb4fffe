from django.db import models

from django_idgen.fields import SegmentIdField, SnowflakeField


class Order(models.Model):
    id = SnowflakeField(primary_key=True)
    note = models.CharField(max_length=40, blank=True)


class Invoice(models.Model):
    id = SegmentIdField(primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.CASCADE, null=True)


class Country(models.Model):
    """A migration fills it, so rows are there before any test."""

    id = SegmentIdField(primary_key=True)
    code = models.CharField(max_length=2)


class Label(models.Model):
    """Its key is the app's default: ``SnowflakeAutoField``."""

    text = models.CharField(max_length=40)


class Customer(models.Model):
    """Fixtures have some, with keys of their own."""

    id = SegmentIdField(primary_key=True)
