"""Calling the doctor, and reading what it said."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.core.management import call_command


def doctor(*only: str, **options: Any) -> tuple[int, str]:
    """The exit status of ``idgen_doctor`` and what it wrote."""
    out = StringIO()
    given = {"only": list(only) or None, "stdout": out, "stderr": out, **options}
    try:
        call_command("idgen_doctor", **given)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def findings(*only: str, **options: Any) -> list[dict[str, Any]]:
    """The findings, as JSON says them."""
    _, words = doctor(*only, json=True, **options)
    found: list[dict[str, Any]] = json.loads(words)["findings"]
    return found
