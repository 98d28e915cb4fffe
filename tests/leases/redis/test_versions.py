"""Processes of the version before, which noted nothing of clocks, beside those of this one.

The scripts in ``lua/`` are that version's, as they stood.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from django_idgen.core.inspection import WorkerState, drawn
from django_idgen.db.redis_client import run_script
from django_idgen.leases.redis import registry as redis_scripts
from django_idgen.leases.redis.registry import LAST, LeaseScripts, Reply
from django_idgen.models import NamespaceRecord
from tests.leases.redis.fleet import HOLDERS, WINDOW, Fleet, Holder

OLD = ("acquire", "renew", "release", "renew_seen")
SINCE = {"acquire": {10, 11, 12}, "renew": {6}, "release": {2}}
"""Which words of a script's own the version before does not send."""


class ScriptsBefore(LeaseScripts):
    """Runs the scripts of the version before, with the words that it sends."""

    def _call(self, name: str, installation: str, *words: object) -> Reply:
        given = [word for place, word in enumerate(words) if place not in SINCE.get(name, ())]
        before = partial(run_before, name) if name in OLD else run_script
        with mock.patch.object(redis_scripts, "run_script", before):
            reply = super()._call(name, installation, *given)
        if name == "renew_seen" and reply.status == "ok":
            # It renewed all at once: no cursor comes back.
            words = (*reply.words[:5], LAST, *reply.words[5:])
            return replace(reply, words=words)
        return reply


def run_before(name: str, client: Any, parts: Any, keys: Any, words: Any) -> list[str]:
    scripts = (parts[0], "tests.leases.redis/common", f"tests.leases.redis/{name}")
    return run_script(client, scripts, keys, words)


def make_old(holder: Holder) -> None:
    """Make ``holder``, which is not started yet, one of the version before."""
    holder.registry._scripts.__class__ = ScriptsBefore


def test_both_versions_lend_from_one_hash(fleet: Fleet) -> None:
    """All day long: nothing counts as lost, no tick repeats, and the map tells what it knows."""
    for number in range(HOLDERS):
        holder = fleet.holder()
        if number % 2:
            make_old(holder)
        holder.start()
    for turn in range(8):
        fleet.pass_ticks(WINDOW * 2 // 3)
        leaving = fleet.holders[turn::8]
        for holder in fleet.holders:
            if holder not in leaving[:4]:  # those come back too late
                holder.go_on()
        for holder in leaving[4:]:
            holder.stop()
            holder.start()
        fleet.holders[turn].registry.renew_seen(idle_after=0.5)
    assert NamespaceRecord.objects.using(fleet.database).get().generation == 1
    assert fleet.generations() == {1}
    fleet.claims.check()
    fleet.go_on()
    inspection = fleet.holders[0].registry.inspect()
    found = drawn("", "redis", fleet.space.workers, inspection)
    assert found.counts()[WorkerState.HELD] == HOLDERS
    for number, holder in enumerate(fleet.holders):
        assert holder.lease is not None
        entry = found.entries[holder.lease.worker]
        assert (entry.clock_offset is None) is (number % 2 == 1)
        assert entry.holder == holder.name
