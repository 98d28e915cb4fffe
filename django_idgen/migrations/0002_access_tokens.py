from typing import Any, ClassVar

from django.db import migrations, models

import django_idgen.models


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [
        ("django_idgen", "0001_initial"),
    ]

    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="AccessToken",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        help_text="Who has it; several tokens may share a name.",
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
                        help_text="Tags whose ids it may take, one a line; “*” stands for any "
                        "characters.",
                        validators=[django_idgen.models.validate_patterns],
                        verbose_name="tags",
                    ),
                ),
                (
                    "generators",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="Aliases of generators whose ids it may take, one a line; “*” as "
                        "above.",
                        validators=[django_idgen.models.validate_patterns],
                        verbose_name="generators",
                    ),
                ),
                (
                    "leases",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="Aliases of generators whose worker ids it may borrow, to make "
                        "ids itself; one a line.",
                        validators=[django_idgen.models.validate_patterns],
                        verbose_name="leases",
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
