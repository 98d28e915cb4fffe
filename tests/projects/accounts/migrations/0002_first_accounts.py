# ruff: noqa: RUF012 - as Django writes them
import os

from django.db import migrations

from django_idgen import generators, segments


def fill(apps, schema_editor):
    """Everything that a process does with its grants, in a migration."""
    accounts = apps.get_model("accounts", "Account").objects.using(schema_editor.connection.alias)
    accounts.create()
    accounts.bulk_create(accounts.model() for _ in range(1200))  # more than a segment
    keeper = generators["default"].keeper
    keeper.renew_in_background()
    assert (keeper.renewals, keeper.failures) == (1, 0)
    generators.close()  # gives the worker id back
    segments["accounts.account"].clear()
    accounts.create()
    segments["accounts.account"].preload(5)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_initial"),
        *(("django_idgen", name) for name in os.environ.get("SHOP_RELEASE", "").split()),
    ]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
