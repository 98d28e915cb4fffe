# ruff: noqa: RUF012 - as Django writes them

import django.db.models.deletion
import django_idgen.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Country",
            fields=[
                ("id", django_idgen.fields.SegmentIdField(primary_key=True, serialize=False)),
                ("code", models.CharField(max_length=2)),
            ],
        ),
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("id", django_idgen.fields.SegmentIdField(primary_key=True, serialize=False)),
            ],
        ),
        migrations.CreateModel(
            name="Label",
            fields=[
                (
                    "id",
                    django_idgen.fields.SnowflakeAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("text", models.CharField(max_length=40)),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", django_idgen.fields.SnowflakeField(primary_key=True, serialize=False)),
                ("note", models.CharField(blank=True, max_length=40)),
            ],
        ),
        migrations.CreateModel(
            name="Invoice",
            fields=[
                ("id", django_idgen.fields.SegmentIdField(primary_key=True, serialize=False)),
                (
                    "order",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, to="shop.order"
                    ),
                ),
            ],
        ),
    ]
