"""How long a caller waits for ids in the tests: their machine has other things to do."""

from __future__ import annotations

from django_idgen.settings import config as conf

SHIPPED_TIMEOUT = conf.DEFAULT_TIMEOUT
PATIENT_TIMEOUT = 30.0
"""Seconds. A first fetch, which makes the tables as well, takes a fraction of it."""


def wait_patiently() -> None:
    """Where nothing is said about it, callers wait for long. Called by the tests' settings."""
    conf.DEFAULT_TIMEOUT = PATIENT_TIMEOUT
