"""How many worker ids one client may have that borrows over HTTP."""

from __future__ import annotations

from math import ceil

from rest_framework.exceptions import APIException

from ..core.errors import NotSeenFromHere
from ..core.inspection import InspectedMark, Inspection
from ..core.registry import Registry
from ..process.handlers import current_settings
from ..signals import emit
from .clients import Owner

__all__ = ["TooManyLeases", "check_quota"]

WARNED = 0.8
"""Of the quota: from there on each further lease is warned of."""


class TooManyLeases(APIException):
    """The client has as many worker ids as it may have. 429."""

    status_code = 429
    default_code = "too_many_leases"

    def __init__(self, alias: str, owner: Owner, most: int, wait: float) -> None:
        self.wait = ceil(wait)
        who = "Open mounts have" if owner.name is None else f"Client {owner.name!r} has"
        super().__init__(
            f"{who} {most} worker ids of generator {alias!r}, which is the most that one client "
            f"may have. Those of processes that ended count until their windows do, the next one "
            f"in {self.wait} s. If the client needs more, raise IDGEN['REST']['max_leases']."
        )


def check_quota(registry: Registry, alias: str, owner: Owner) -> None:
    """Raise :class:`TooManyLeases` unless ``owner`` may have one more of ``registry``'s worker ids.

    What is stored is counted. Requests that are served at one moment count alike: together they
    may pass the quota by their number less one.
    """
    workers = len(registry.namespace.workers)
    most = current_settings().rest.max_leases or ceil(workers / 2)
    if most >= workers:
        return  # the client has the namespace to itself
    try:
        stored = registry.inspect()
    except NotSeenFromHere:
        return  # it borrows itself, of a service that counts
    left = [
        left
        for survey in stored
        for inspected in survey.marks
        if owner.has(inspected.mark.holder) and (left := _seconds_left(survey, inspected)) > 0
    ]
    if len(left) + 1 > most * WARNED:
        held = min(len(left) + 1, most)
        emit("lease_quota_near", generator=alias, client=owner.name or "", held=held, most=most)
    if len(left) >= most:
        raise TooManyLeases(alias, owner, most, min(left))


def _seconds_left(survey: Inspection, inspected: InspectedMark) -> float:
    """How long a worker id counts as its holder's yet: 0 or less if it doesn't.

    One that was given back counts, too, while its window lies ahead: else a client that
    borrows and gives back in turn would move the windows of all worker ids ahead.
    """
    if inspected.void:
        return 0.0
    space = survey.namespace
    free_from = 0 if inspected.mark.token else space.skew_ticks
    return (inspected.mark.until - free_from - space.tick_at(survey.now_us)) * space.tick_us / 1e6
