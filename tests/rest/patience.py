"""Settings for a machine that has other things to do."""

from __future__ import annotations

from typing import Any

from tests.places import idgen_on

__all__ = ["patient_idgen_on"]


def patient_idgen_on(alias: str) -> dict[str, Any]:
    """Ids come from ``alias``; who has none left waits for long."""
    idgen = idgen_on(alias)
    options = {**idgen["SEGMENTS"]["OPTIONS"], "timeout": 30}
    return {**idgen, "SEGMENTS": {**idgen["SEGMENTS"], "OPTIONS": options}}
