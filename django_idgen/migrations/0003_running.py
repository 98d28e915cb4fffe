from typing import Any, ClassVar

from django.db import migrations, models

from django_idgen.tables import add_missing_columns, make_missing_tables

MODELS = ("LeafAlloc", "WorkerLease", "LeaseHistory")


def make_tables(apps: Any, schema_editor: Any) -> None:
    make_missing_tables(schema_editor.connection, apps, only=MODELS)
    add_missing_columns(schema_editor.connection, apps, only=MODELS)


def drop_history(apps: Any, schema_editor: Any) -> None:
    """The columns stay: those who don't know them have defaults in the database."""
    schema_editor.delete_model(apps.get_model("django_idgen", "LeaseHistory"))


class Migration(migrations.Migration):
    """Pausing, the last holder, and the history of worker ids.

    Processes of the version before go on under it: what they don't write has a default.
    """

    # What makes the tables has its own transactions, and two processes may be at it.
    atomic = False

    dependencies: ClassVar[list[tuple[str, str]]] = [
        ("django_idgen", "0002_access_tokens"),
    ]

    state_operations: ClassVar[list[Any]] = [
        migrations.AddField(
            "LeafAlloc",
            "paused",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text=(
                    "No process is given more of its ids; those that they hold are used up."
                ),
                verbose_name="paused",
            ),
        ),
        migrations.AddField(
            "LeafAlloc",
            "holder",
            models.CharField(blank=True, db_default="", max_length=200, verbose_name="last holder"),
        ),
        migrations.AddField(
            "LeafAlloc",
            "fetched_at",
            models.DateTimeField(blank=True, null=True, verbose_name="last fetch"),
        ),
        migrations.AddField(
            "LeafAlloc",
            "fetched_ids",
            models.BigIntegerField(db_default=0, default=0, verbose_name="ids of the last fetch"),
        ),
        migrations.AddField(
            "WorkerLease",
            "clock_offset_us",
            models.BigIntegerField(blank=True, null=True, verbose_name="clock offset (µs)"),
        ),
        migrations.CreateModel(
            name="LeaseHistory",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("namespace", models.CharField(max_length=128, verbose_name="namespace")),
                ("worker", models.BigIntegerField(verbose_name="worker id")),
                ("start", models.BigIntegerField(verbose_name="window start (tick)")),
                ("holder", models.CharField(blank=True, max_length=200, verbose_name="holder")),
                ("acquired_at", models.DateTimeField(db_index=True, verbose_name="acquired")),
            ],
            options={
                "verbose_name": "lease history row",
                "verbose_name_plural": "lease history rows",
                "db_table": "django_idgen_leasehistory",
                "ordering": ["-acquired_at", "-id"],
                "managed": False,
                "indexes": [
                    models.Index(
                        fields=["namespace", "worker", "start"],
                        name="django_idgen_leasehist_tick",
                    ),
                ],
            },
        ),
    ]

    operations: ClassVar[list[Any]] = [
        migrations.SeparateDatabaseAndState(state_operations=state_operations),
        migrations.RunPython(make_tables, drop_history),
    ]
