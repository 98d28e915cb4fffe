"""CosId's machine ids while a scheduler renews: the guard alone says how long they are held."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_idgen.contrib.old_servers.cosid import Instance, MachineIds
from django_idgen.core.errors import NoFreeWorker
from django_idgen.process import factory, lifecycle
from django_idgen.settings.config import read_settings
from tests.faults.processes import eventually
from tests.places import empty_place as empty_place

GUARD = 2.0
SILENT, HEARD, LATE = (Instance("shop", name, stable=True) for name in ("silent", "heard", "late"))


@pytest.fixture(autouse=True)
def _lending(empty_place: str) -> Iterator[None]:
    """A database of each kind that lends three worker ids; its windows outlast the guard."""
    options = {"database": empty_place, "workers": [0, 3], "window": 600}
    idgen = {
        "GENERATORS": {"default": {"LEASES": {"OPTIONS": options}}},
        "REST": {"max_leases": 3},
    }
    with override_settings(IDGEN=idgen):
        yield
        lifecycle.close_all()


def renewed() -> int:
    """How many leases the real command has renewed."""
    out = StringIO()
    call_command("idgen_upkeep", stdout=out)
    (line,) = (each for each in out.getvalue().splitlines() if "renew_worker_leases" in each)
    return int(json.loads(line.partition(": ")[2])["default"]["renewed"])


def test_upkeep_holds_no_machine_id_longer_than_its_guard() -> None:
    """A silent instance's is lent anew, from where its window ended; those that guard keep theirs.

    Our own process, seen lately as well, is renewed at each run.
    """
    registry = factory.build_registry(read_settings().generators["default"])
    own = registry.acquire(holder="web").lease
    machines = MachineIds("default", guard=GUARD, skew=0.1, late=0)

    def ends(holder: str) -> list[int]:
        return [lease.until for lease in registry.held_by(holder)]

    silent, heard = machines.distribute(SILENT), machines.distribute(HEARD)
    (ended,) = ends(SILENT.label)

    for _ in range(2):
        assert renewed() == 1
    assert ends(SILENT.label) == [ended]

    def taken_over() -> bool:
        assert machines.guard(HEARD).machine_id == heard.machine_id
        try:
            return machines.distribute(LATE).machine_id == silent.machine_id
        except NoFreeWorker:
            return False

    eventually(taken_over)
    (late,) = registry.held_by(LATE.label)
    assert late.start >= ended
    assert ends("web")[0] > own.until
