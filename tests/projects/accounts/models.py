from django.db import models

from django_idgen.fields import SegmentIdField, SnowflakeField


class Account(models.Model):
    """A data migration makes some; by its label it runs before any migration of django_idgen."""

    id = SnowflakeField(primary_key=True)
    number = SegmentIdField(unique=True)
