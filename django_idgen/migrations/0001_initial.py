import logging
from typing import Any, ClassVar

import django.core.validators
import django.db.models.functions.datetime
from django.db import migrations, models

import django_idgen.models
from django_idgen.db.connection import home_connection
from django_idgen.db.tables import bring_up

logger = logging.getLogger("django_idgen")


def drop_tables(apps: Any, schema_editor: Any) -> None:
    made = reversed(Migration.state_operations)
    models = [apps.get_model("django_idgen", operation.name) for operation in made]
    alias = schema_editor.connection.alias
    marks = [model for model in models if model.__name__ != "Installation"]
    if any(model._default_manager.using(alias).exists() for model in marks):
        # Made anew they would start over, while processes live, and rows are there,
        # that have those ids; and a Leaf may share the table of tags.
        logger.warning(
            "The tables of django_idgen stay in database %r: they say which ids were given out. "
            "Drop them by hand once no ids of theirs are in use.",
            alias,
        )
        return
    with home_connection(alias).schema_editor(atomic=False) as editor:
        for model in models:
            editor.delete_model(model)


class Migration(migrations.Migration):
    """The tables may be there already: another app's migration may have taken ids."""

    initial = True
    # What makes the tables has its own transactions, and two processes may be at it.
    atomic = False

    dependencies: ClassVar[list[tuple[str, str]]] = []

    state_operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Installation",
            fields=[
                (
                    "key",
                    models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False),
                ),
                ("identity", models.CharField(max_length=32)),
                ("protocol", models.PositiveSmallIntegerField()),
                ("namespaces", models.TextField(default="{}")),
                ("server", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("largest_step", models.BigIntegerField(db_default=0, default=0)),
                ("first_id", models.BigIntegerField(db_default=1, default=1)),
                ("delta", models.PositiveIntegerField(db_default=1, default=1)),
                ("remainder", models.PositiveIntegerField(db_default=0, default=0)),
                ("growing", models.BooleanField(db_default=False, default=False)),
            ],
            options={
                "db_table": "django_idgen_installation",
                "managed": False,
                "base_manager_name": "objects",
            },
            managers=[("objects", django_idgen.models.HomeManager())],
        ),
        migrations.CreateModel(
            name="NamespaceRecord",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=128, primary_key=True, serialize=False, verbose_name="namespace"
                    ),
                ),
                (
                    "installation",
                    models.CharField(
                        blank=True, db_default="", max_length=32, verbose_name="installation"
                    ),
                ),
                ("fingerprint", models.TextField(verbose_name="fingerprint")),
                (
                    "server",
                    models.CharField(blank=True, max_length=200, verbose_name="database server"),
                ),
                ("generation", models.BigIntegerField(default=1, verbose_name="generation")),
                ("fence", models.BigIntegerField(default=0, verbose_name="fence (ticks)")),
                ("largest_window", models.BigIntegerField(verbose_name="largest window (ticks)")),
                (
                    "highest_until",
                    models.BigIntegerField(
                        db_default=0, default=0, verbose_name="highest mark (ticks)"
                    ),
                ),
                (
                    "workers_made",
                    models.BigIntegerField(default=0, verbose_name="worker ids ever lent"),
                ),
                (
                    "ceiling",
                    models.BigIntegerField(db_default=0, default=0, verbose_name="ceiling (ticks)"),
                ),
                (
                    "incarnation",
                    models.CharField(
                        blank=True, db_default="", max_length=200, verbose_name="incarnation"
                    ),
                ),
                ("protocol", models.PositiveSmallIntegerField()),
            ],
            options={
                "verbose_name": "namespace",
                "verbose_name_plural": "namespaces",
                "db_table": "django_idgen_namespace",
                "ordering": ["name"],
                "managed": False,
                "base_manager_name": "objects",
            },
            managers=[("objects", django_idgen.models.HomeManager())],
        ),
        migrations.CreateModel(
            name="WorkerLease",
            fields=[
                (
                    "id",
                    models.CharField(
                        editable=False, max_length=160, primary_key=True, serialize=False
                    ),
                ),
                (
                    "namespace",
                    models.CharField(db_index=True, max_length=128, verbose_name="namespace"),
                ),
                ("worker", models.BigIntegerField(verbose_name="worker id")),
                ("token", models.CharField(blank=True, max_length=32, verbose_name="token")),
                ("start", models.BigIntegerField(verbose_name="window start (tick)")),
                ("until", models.BigIntegerField(verbose_name="window end (tick)")),
                ("generation", models.BigIntegerField(verbose_name="generation")),
                ("holder", models.CharField(blank=True, max_length=200, verbose_name="holder")),
                ("acquired_at", models.DateTimeField(verbose_name="acquired")),
                ("seen_at", models.DateTimeField(verbose_name="last seen")),
                (
                    "clock_offset_us",
                    models.BigIntegerField(blank=True, null=True, verbose_name="clock offset (µs)"),
                ),
                ("protocol", models.PositiveSmallIntegerField()),
            ],
            options={
                "verbose_name": "worker lease",
                "verbose_name_plural": "worker ids",
                "db_table": "django_idgen_workerlease",
                "ordering": ["namespace", "worker"],
                "managed": False,
                "base_manager_name": "objects",
            },
            managers=[("objects", django_idgen.models.HomeManager())],
        ),
        migrations.CreateModel(
            name="LeafAlloc",
            fields=[
                (
                    "biz_tag",
                    models.CharField(
                        max_length=128,
                        primary_key=True,
                        serialize=False,
                        validators=[django_idgen.models.validate_tag],
                        verbose_name="tag",
                    ),
                ),
                (
                    "max_id",
                    models.BigIntegerField(
                        db_default=1,
                        default=1,
                        help_text="The first id that no process was given yet.",
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(9223372036854775807),
                        ],
                        verbose_name="next free id",
                    ),
                ),
                (
                    "step",
                    models.PositiveIntegerField(
                        db_default=1000,
                        default=1000,
                        help_text=(
                            "How many ids a process fetches at a time. A change applies from the "
                            "next fetch."
                        ),
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000000),
                        ],
                        verbose_name="step",
                    ),
                ),
                (
                    "description",
                    models.CharField(
                        blank=True, db_default="", max_length=256, verbose_name="description"
                    ),
                ),
                (
                    "update_time",
                    models.DateTimeField(
                        auto_now=True,
                        db_default=django.db.models.functions.datetime.Now(),
                        verbose_name="last change",
                    ),
                ),
                (
                    "delta",
                    models.PositiveIntegerField(
                        db_default=1,
                        default=1,
                        help_text=(
                            "Distance between two ids; the number of databases that share the tag."
                        ),
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="delta",
                    ),
                ),
                (
                    "remainder",
                    models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="What this database's ids leave when divided by delta.",
                        verbose_name="remainder",
                    ),
                ),
                (
                    "largest_step",
                    models.BigIntegerField(
                        db_default=0,
                        default=0,
                        help_text=(
                            "Twice the longest range of one fetch: what may be lost with the "
                            "server."
                        ),
                        verbose_name="largest step",
                    ),
                ),
                (
                    "server",
                    models.CharField(
                        blank=True, db_default="", max_length=200, verbose_name="database server"
                    ),
                ),
                (
                    "rate",
                    models.FloatField(db_default=0.0, default=0.0, verbose_name="ids a second"),
                ),
                (
                    "measured_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="measured"),
                ),
                (
                    "measured_used",
                    models.BigIntegerField(
                        db_default=0, default=0, verbose_name="used when measured"
                    ),
                ),
                (
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
                (
                    "holder",
                    models.CharField(
                        blank=True, db_default="", max_length=200, verbose_name="last holder"
                    ),
                ),
                (
                    "fetched_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="last fetch"),
                ),
                (
                    "fetched_ids",
                    models.BigIntegerField(
                        db_default=0, default=0, verbose_name="ids of the last fetch"
                    ),
                ),
                (
                    "tables_seen",
                    models.TextField(db_default="", default="", editable=False, serialize=False),
                ),
            ],
            options={
                "verbose_name": "segment tag",
                "verbose_name_plural": "segment tags",
                "db_table": "leaf_alloc",
                "managed": False,
                "base_manager_name": "objects",
                "ordering": ["biz_tag"],
            },
            managers=[("objects", django_idgen.models.HomeManager())],
        ),
        migrations.CreateModel(
            name="SegmentHistory",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tag", models.CharField(max_length=128, verbose_name="tag")),
                ("start", models.BigIntegerField(verbose_name="first id")),
                ("stop", models.BigIntegerField(verbose_name="end (not included)")),
                ("delta", models.PositiveIntegerField(default=1, verbose_name="delta")),
                ("holder", models.CharField(max_length=200, verbose_name="holder")),
                ("taken_at", models.DateTimeField(db_index=True, verbose_name="taken")),
            ],
            options={
                "verbose_name": "segment granted",
                "verbose_name_plural": "segments granted",
                "db_table": "django_idgen_history",
                "ordering": ["-taken_at", "-id"],
                "managed": False,
                "base_manager_name": "objects",
                "indexes": [
                    models.Index(fields=["tag", "start"], name="django_idgen_history_tag"),
                ],
            },
            managers=[("objects", django_idgen.models.HomeManager())],
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
                "base_manager_name": "objects",
                "indexes": [
                    models.Index(
                        fields=["namespace", "worker", "start"],
                        name="django_idgen_leasehist_tick",
                    ),
                ],
            },
            managers=[("objects", django_idgen.models.HomeManager())],
        ),
    ]

    operations: ClassVar[list[Any]] = [
        migrations.SeparateDatabaseAndState(state_operations=state_operations),
        migrations.RunPython(bring_up, drop_tables),
        migrations.CreateModel(
            name="AccessToken",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        help_text=(
                            "The program that uses the token. Several tokens may have one name."
                        ),
                        max_length=100,
                        verbose_name="client",
                    ),
                ),
                (
                    "digest",
                    models.CharField(
                        editable=False, max_length=64, unique=True, verbose_name="digest"
                    ),
                ),
                ("hint", models.CharField(editable=False, max_length=8, verbose_name="ends in")),
                (
                    "tags",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text=(
                            "Tags whose ids the token may take, one per line. “*” stands for any "
                            "characters."
                        ),
                        validators=[django_idgen.models.validate_patterns],
                        verbose_name="tags",
                    ),
                ),
                (
                    "generators",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text=(
                            "Aliases of generators whose ids the token may take, one per line. "
                            "“*” as above."
                        ),
                        validators=[django_idgen.models.validate_patterns],
                        verbose_name="generators",
                    ),
                ),
                (
                    "leases",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text=(
                            "Aliases of generators whose worker ids the client may borrow to make "
                            "ids itself, one per line."
                        ),
                        validators=[django_idgen.models.validate_patterns],
                        verbose_name="may run its own generator",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="made")),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
            ],
            options={
                "db_table": "django_idgen_accesstoken",
                "verbose_name": "access token",
                "verbose_name_plural": "access tokens",
                "ordering": ["name", "-id"],
            },
        ),
    ]
