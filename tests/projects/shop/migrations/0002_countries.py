# ruff: noqa: RUF012 - as Django writes them
from django.db import migrations


def fill(apps, schema_editor):
    countries = apps.get_model("shop", "Country").objects.using(schema_editor.connection.alias)
    countries.bulk_create(countries.model(code=code) for code in ("CH", "CN", "FR"))


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
