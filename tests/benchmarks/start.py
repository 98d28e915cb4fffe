"""What the app adds to the start of a process: ``django.setup()`` with it and without it.

Both are fresh processes of one project: the apps that ``startproject`` writes, and a model, whose
key is the one of the app or Django's. The clock of the processor counts, which other processes
disturb less.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from .bars import Row, at_most, paired

ROUNDS = 25
MOST_MODULES = 60
PROJECT = """
import sys, time
import django
from django.conf import settings

settings.configure(
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
        "django.contrib.staticfiles",
        *{apps!r},
        "shop",
    ],
)
started = time.process_time_ns()
django.setup()
taken = time.process_time_ns() - started
print(taken, sum(name.partition(".")[0] == "django_idgen" for name in sys.modules))
"""
MODELS = """
from django.db import models
{imports}

class Order(models.Model):
    id = {key}(primary_key=True)
"""


def rows() -> Iterator[Row]:
    with TemporaryDirectory(prefix="idgen-start-") as directory:
        plain = _project(Path(directory, "plain"), [], "", "models.BigAutoField")
        ours = _project(
            Path(directory, "ours"),
            ["django_idgen"],
            "from django_idgen.fields import SnowflakeField",
            "SnowflakeField",
        )
        for each in (plain, ours):
            _started(*each)  # compiles the modules
        medians, ratios = paired([lambda: _started(*plain)[0], lambda: _started(*ours)[0]], ROUNDS)
        modules = _started(*ours)[1]
    note = f"{medians[1] / 1e6:.0f} against {medians[0] / 1e6:.0f} ms"
    yield at_most("django.setup() with the app, of that without it", 1.3, ratios[1], note=note)
    yield at_most("modules of ours that it imports", MOST_MODULES, modules, unit="")


def _project(directory: Path, apps: list[str], imports: str, key: str) -> tuple[str, Path]:
    shop = directory / "shop"
    shop.mkdir(parents=True)
    (shop / "__init__.py").touch()
    (shop / "models.py").write_text(MODELS.format(imports=imports, key=key))
    return PROJECT.format(apps=apps), directory


def _started(code: str, directory: Path) -> tuple[int, int]:
    """Nanoseconds of ``django.setup()``, and the modules of ours that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, check=True, capture_output=True, text=True
    )
    taken, modules = done.stdout.split()
    return int(taken), int(modules)
