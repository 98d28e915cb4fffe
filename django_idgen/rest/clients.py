"""Clients that borrow worker ids over HTTP: their labels, their quota, whose worker ids they get.

Needs no DRF. A worker id belongs to the owner whose id its holder's label begins with. Tokens of
one name are one owner, so a new secret changes nothing. Worker ids lent through an open mount have
no owner. The label of a process that asks the registry directly never begins with a quote.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from math import ceil
from secrets import token_hex
from typing import Any

from django.core.signals import setting_changed

from ..core.errors import LeaseError, NotSeenFromHere, RegistryUnavailable, SegmentUnavailable
from ..core.inspection import InspectedMark, Inspection
from ..core.lease import OLD_CLIENTS
from ..core.registry import Registry
from ..db.connection import place_of
from ..db.installation import DatabaseOwner
from ..process.maps import current_settings
from ..signals import emit
from .tokens import KnownToken

MOST_LABEL = 200
"""Characters that a registry keeps of a holder's name."""
MOST_QUOTED = 102
"""Characters of an owner's id: a name of a hundred, and quotes."""
OWNER_AGE = 60.0
"""Seconds after which a database's identity is read again."""
WARNED = 0.8
"""Share of the quota from which on each new lease is signalled."""


# --- owners ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owner:
    """The tokens of one name; None: the callers of all open mounts."""

    name: str | None

    @classmethod
    def of(cls, token: KnownToken | None) -> Owner:
        return OPEN if token is None else cls(token.name)

    @property
    def id(self) -> str:
        """What its labels begin with, never cut: the name as JSON, or a digest of a longer one."""
        quoted = json.dumps(self.name, ensure_ascii=False)
        if len(quoted) <= MOST_QUOTED:
            return quoted
        return f'"{sha256(quoted.encode()).hexdigest()[:32]}"'

    def label(self, holder: str) -> str:
        """The label of this owner's client ``holder``."""
        return f"{self.id} {holder}"

    def instance_label(self, namespace: str, name: str) -> str:
        """The label of a CosId instance, which identifies it."""
        return OLD_CLIENTS + self.label(f"{json.dumps(namespace, ensure_ascii=False)} {name}")

    def has(self, label: str) -> bool:
        return label.removeprefix(OLD_CLIENTS).startswith(f"{self.id} ")


OPEN = Owner(None)


# --- quota -----------------------------------------------------------------------------


class TooManyLeases(LeaseError):
    """The client holds as many worker ids as it may. ``wait``: seconds until one expires."""

    def __init__(self, alias: str, owner: Owner, most: int, wait: float) -> None:
        self.wait = ceil(wait)
        who = "Open mounts have" if owner.name is None else f"Client {owner.name!r} has"
        super().__init__(
            f"{who} {most} worker ids of generator {alias!r}, the most that one client may have. "
            f"Those of processes that ended count until their windows end, the next one in "
            f"{self.wait} s. If the client needs more, raise IDGEN['REST']['max_leases']."
        )


def check_quota(registry: Registry, alias: str, owner: Owner) -> None:
    """Raise :class:`TooManyLeases` unless ``owner`` may have one more worker id of ``registry``.

    It counts stored leases. Requests served at the same moment see the same count: together
    they may pass the quota by their number less one.
    """
    workers = len(registry.namespace.workers)
    most = current_settings().rest.max_leases or ceil(workers / 2)
    if most >= workers:
        return  # the client has the namespace to itself
    try:
        stored = registry.inspect()
    except NotSeenFromHere:
        return  # this service borrows from another one, which counts
    left = [
        left
        for inspected in stored.marks
        if owner.has(inspected.mark.holder) and (left := _seconds_left(stored, inspected)) > 0
    ]
    if len(left) + 1 > most * WARNED:
        held = min(len(left) + 1, most)
        emit("lease_quota_near", generator=alias, client=owner.name or "", held=held, most=most)
    if len(left) >= most:
        raise TooManyLeases(alias, owner, most, min(left))


def _seconds_left(inspection: Inspection, inspected: InspectedMark) -> float:
    """Seconds for which a worker id still counts for its holder; 0 or less: it doesn't.

    A released one counts, too, while its window lies ahead. Otherwise a client that borrows and
    releases in turn would move the windows of all worker ids ahead.
    """
    if inspected.void:
        return 0.0
    space = inspection.namespace
    free_from = 0 if inspected.mark.token else space.skew_ticks
    ticks = inspected.mark.until - free_from - space.tick_at(inspection.now_us)
    return ticks * space.tick_us / 1e6


# --- installations ---------------------------------------------------------------------

_of_process: dict[int, str] = {}


@lru_cache
def _owner_of(alias: str) -> DatabaseOwner:
    return DatabaseOwner(alias)


def _forget_owners(**_kwargs: Any) -> None:
    _owner_of.cache_clear()


setting_changed.connect(_forget_owners)


def installation_of_registry(registry: Registry) -> str:
    """The identity of the database whose worker ids ``registry`` lends.

    Raises :class:`RegistryUnavailable` if the database doesn't answer.
    """
    known = registry.installation()
    if known is not None:
        return known
    alias = registry.database
    if alias is None or place_of(alias).in_process:
        return _this_process()
    found = _owner_of(alias).current(max_age=OWNER_AGE)
    if not found:
        raise RegistryUnavailable(
            f"Database {alias!r} doesn't show its identity. The service tries again within half a "
            "minute."
        )
    return found


def installation_of_source(source: Any, tag: str) -> str:
    """The identity of the database whose ids ``source`` gives out under ``tag``.

    Raises :class:`SegmentUnavailable` if the database doesn't answer.
    """
    source = source.behind
    if not source.can_be_pooled:
        return _this_process()
    found = str(source.owner(tag, max_age=OWNER_AGE))
    if found:
        return found
    if source.keeps_rows and place_of(source.route(tag)[0]).in_process:
        return _this_process()
    raise SegmentUnavailable(
        f"The database of tag {tag!r} doesn't show its identity. The service tries again within "
        "half a minute."
    )


def _this_process() -> str:
    """An identity for ids that only this process knows: no other process may serve its clients."""
    pid = os.getpid()
    return _of_process.get(pid) or _of_process.setdefault(pid, f"process-{token_hex(8)}")
