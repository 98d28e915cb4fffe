"""Worker ids that a host's name or an environment variable numbers: preferred, or static."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from django_idgen.core.errors import ConfigurationError
from django_idgen.core.options import numbered_worker
from django_idgen.leases.database import DatabaseLeases
from django_idgen.leases.static import StaticLeases
from django_idgen.testing.contracts import NAMESPACE
from tests.places import make_tables

EIGHT = range(8, 16)


@pytest.mark.parametrize(
    ("host", "number"), [("shop-3", 3), ("shop-0.shop.default.svc", 0), ("web7", 7), ("07", 7)]
)
def test_a_host_is_numbered_as_a_statefulset_numbers_its_pods(
    host: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the digits at the end of its name; the domain does not count."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert numbered_worker("prefer", "hostname", EIGHT) == EIGHT[number]


def test_a_process_is_numbered_by_its_environment() -> None:
    """With white space around it, perhaps."""
    assert numbered_worker("prefer", "env:POD", EIGHT, environ={"POD": " 5 "}) == EIGHT[5]


@pytest.mark.parametrize(
    ("value", "environ", "said"),
    [
        ("env:POD", {}, "environment variable 'POD' has no number ('')"),
        ("env:POD", {"POD": "three"}, "has no number ('three')"),
        ("env:POD", {"POD": "-1"}, "has no number ('-1')"),
        ("env:POD", {"POD": "\u0663"}, "has no number"),
        ("env:POD", {"POD": "8"}, "says 8, but there are 8 worker ids (8 to 15)"),
        ("env:POD", {"POD": "1" * 50}, "has no number"),
        ("host", {}, "must be 'hostname' or 'env:NAME', not 'host'"),
        (3, {}, "must be 'hostname' or 'env:NAME', not 3"),
        ("hostname", {}, "host name 'shop-a' has no number"),
    ],
)
def test_a_number_that_is_none_is_refused(
    value: object, environ: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was found, and what would do; a host without one is not taken for the first."""
    monkeypatch.setattr(socket, "gethostname", lambda: "shop-a")
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        numbered_worker("prefer", value, EIGHT, environ=environ)


def test_a_static_worker_id_may_be_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the first of ``workers``, or of the layout's."""
    monkeypatch.setenv("POD", "1")
    for workers, expected in ((None, 1), ((2, 3), 3)):
        registry = StaticLeases(
            NAMESPACE, worker_from="env:POD", workers=workers, directory=tmp_path
        )
        assert registry.acquire(holder="a").lease.worker == expected
        registry.close()
    # The two hosts that read another number would have one worker id.
    with pytest.raises(ConfigurationError, match="not worker=3 and worker_from='env:POD'"):
        StaticLeases(NAMESPACE, worker=3, worker_from="env:POD", directory=tmp_path)


def test_a_preferred_worker_id_is_lent_if_it_is_free(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to who had another one before; while it is held another one is lent, of all."""
    make_tables(postgres)
    monkeypatch.setenv("POD", "2")
    space = replace(NAMESPACE, name="numbered")
    plain = DatabaseLeases(space, database=postgres)
    numbered = DatabaseLeases(space, database=postgres, prefer="env:POD")
    for _ in range(3):
        lease = numbered.acquire(holder="pod").lease
        assert lease.worker == 2
        other = numbered.acquire(holder="pod").lease
        assert other.worker != 2
        for each in (lease, other):
            assert numbered.release(each, last_tick=None)
        # The one that it had last is another one now.
        last = plain.acquire(holder="pod", avoid=2).lease
        plain.release(last, last_tick=None)
    for registry in (plain, numbered):
        registry.close()
