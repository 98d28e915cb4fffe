# ruff: noqa: RUF012, N999 - as Django writes them
import pkgutil

from django.db import migrations

from django_idgen import migrations as released
from django_idgen.db.tables import MODELS, bring_up
from later.models import column

LATEST = max(name for _, name, _ in pkgutil.iter_modules(released.__path__))


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("django_idgen", LATEST)]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.AddField(name, "made_up", column()) for name in MODELS]
        ),
        migrations.RunPython(bring_up, migrations.RunPython.noop),
    ]
