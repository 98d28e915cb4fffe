# ruff: noqa: RUF012 - as Django writes them
import django_idgen.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Account",
            fields=[
                ("id", django_idgen.fields.SnowflakeField(primary_key=True, serialize=False)),
                ("number", django_idgen.fields.SegmentIdField(unique=True)),
            ],
        ),
    ]
