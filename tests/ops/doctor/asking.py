"""Calling the doctor, and reading what it said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.db import connections


def doctor(*only: str, **options: Any) -> tuple[int, str]:
    """The exit status of ``idgen_doctor`` and what it wrote."""
    out = StringIO()
    given = {"only": list(only) or None, "stdout": out, "stderr": out, **options}
    try:
        call_command("idgen_doctor", **given)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def mended(*only: str, **options: Any) -> str:
    """What ``idgen_doctor --fix`` said, after which nothing is left to do."""
    code, words = doctor(*only, fix=True, yes=True, **options)
    assert code == 0, words
    return words


def findings(*only: str, **options: Any) -> list[dict[str, Any]]:
    """The findings, as JSON says them."""
    _, words = doctor(*only, json=True, **options)
    found: list[dict[str, Any]] = json.loads(words)["findings"]
    return found


def messages(*aliases: str) -> list[CheckMessage]:
    """What our checks say in ``check --deploy`` of these databases."""
    return run_checks(
        tags=["django_idgen"], include_deployment_checks=True, databases=list(aliases)
    )


@contextmanager
def without(*aliases: str) -> Iterator[None]:
    """A block in which these databases are not in the settings."""
    configured = {
        alias: connections.settings.pop(alias) for alias in aliases if alias in connections.settings
    }
    try:
        yield
    finally:
        connections.settings.update(configured)
