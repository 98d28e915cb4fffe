"""django_idgen as a later version may be: each of its tables has one more column."""

from django.db import models as fields

from django_idgen import models
from django_idgen.db.tables import MODELS


def column() -> "fields.CharField[str, str]":
    return fields.CharField(max_length=9, default="", db_default="")


for name in MODELS:
    column().contribute_to_class(getattr(models, name), "made_up")
