"""Liveness and readiness, for load balancers and orchestrators; plain Django views.

``path("health/live", django_idgen.ops.health.live)`` says that the process answers requests. It
asks nothing else. ``path("health/ready", django_idgen.ops.health.ready)`` says, with status 200
or 503, whether the process can give out ids.

Both are open, since an orchestrator can't log in, so they tell little. Staff sees the details.

========================  ==========================================================
``segments``              no database (or pool) of the segment source answers
``generator:<alias>``     its registry or source does not answer; it lost its lease; its window is
                          nearly over and can't be renewed; it was refused (clock,
                          settings, no free worker id); with ``refuse_skew``, the
                          host's clock is wrong
``settings``              ``IDGEN`` is wrong
========================  ==========================================================

An outage that ids survive must not empty a load balancer. So while all generators and tags that
the process used in the last 15 minutes have ids left, a database that does not answer, or a renewal
that fails, is only told in the details. ``?strict=1`` counts it at once. A process that never had
ids is not ready then.

Nothing here takes an id or a worker id. A generator that no id was asked of is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from ..core.errors import ConfigurationError, RegistryUnavailable
from ..core.errors import LeaseExpired as Expired
from ..core.keeper import LeaseKeeper
from ..core.segment_generator import IDLE_AFTER, SegmentGenerator
from ..core.tag_generator import TagGenerator
from ..db.transactions import never_atomic
from ..process import maps
from .probes import Outcome, Probe, Probes

RETRY_AFTER = "5"
"""Seconds after which a client may ask again."""
MAX_AGE = 3.0
"""Seconds that an answer counts."""
WITHIN = 0.8
"""Seconds to wait for an answer: an orchestrator itself waits one second."""
REMEMBERED = 60.0
"""Seconds that a refusal counts. Then a caller may try again: without one it would last."""


# --- views --------------------------------------------------------------------------


@csrf_exempt
@require_safe
@never_cache
@never_atomic
def live(request: HttpRequest, **_kwargs: str) -> HttpResponse:  # noqa: ARG001
    """The process answers requests: ``{"live": true}``."""
    return JsonResponse({"live": True})


@csrf_exempt
@require_safe
@never_cache
@never_atomic
def ready(request: HttpRequest, **_kwargs: str) -> HttpResponse:
    """Whether the process can give out ids: ``{"ready": true}``, or 503 and what fails."""
    found = readiness(strict=request.GET.get("strict") == "1")
    content = describe(found, lambda: getattr(request, "user", None))
    response = JsonResponse(content, status=200 if found.ready else 503)
    if not found.ready:
        response["Retry-After"] = RETRY_AFTER
    return response


def describe(found: Readiness, user: Callable[[], Any]) -> dict[str, Any]:
    """The answer to a client. ``user`` is only called if the database is not known to hang."""
    content: dict[str, Any] = {"ready": found.ready}
    if not found.ready:
        content["failing"] = list(found.failing)
    if found.answered and _is_staff(user):
        content["parts"] = [
            {"name": part.name, "ready": part.ready, "detail": part.detail} for part in found.parts
        ]
    return content


def _is_staff(user: Callable[[], Any]) -> bool:
    try:
        asking = user()
        return bool(getattr(asking, "is_staff", False) and getattr(asking, "is_active", False))
    except DatabaseError:
        return False


# --- readiness ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that ids depend on."""

    name: str
    ready: bool
    detail: str
    """For staff: it names hosts and settings."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this process can give out ids, and the parts that decide it."""

    parts: tuple[Part, ...]
    answered: bool = True
    """Whether every probe gave an answer, be it an error."""

    @property
    def ready(self) -> bool:
        return all(part.ready for part in self.parts)

    @property
    def failing(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts if not part.ready)


_probes = Probes()


def readiness(
    *, strict: bool = False, max_age: float = MAX_AGE, within: float = WITHIN
) -> Readiness:
    """The readiness of this process. Thread-safe; never raises.

    ``strict``: whether what does not answer counts while ids are left. ``max_age`` and ``within``:
    see :meth:`.Probes.outcomes`.
    """
    try:
        of_source = maps.segments.allocator().source.probes()
        keepers = _keepers_in_use()
        of_generators = {alias: keeper.registry.probes() for alias, keeper in keepers.items()}
        of_tags = {alias: tag.source.probes() for alias, tag in _tags_in_use().items()}
    except (ConfigurationError, ImportError) as error:
        return Readiness((Part("settings", False, str(error)),))
    wanted = dict(of_source)
    for probes in (*of_generators.values(), *of_tags.values()):
        wanted |= probes
    outcomes = _probes.outcomes(wanted, max_age=max_age, within=within)
    failure = _failure(of_source, outcomes)
    lasts = not strict and _has_ids_left(keepers.values())
    parts = [_of_source("segments", failure, lasts)]
    for alias, probes in of_tags.items():
        parts.append(_of_source(f"generator:{alias}", _failure(probes, outcomes), lasts))
    for alias, keeper in keepers.items():
        probes = of_generators[alias]
        trouble = _failure(probes, outcomes) or _shortage(keeper, probes)
        parts.append(_of_generator(alias, keeper, _refusal(keeper, bool(probes)), trouble, lasts))
    return Readiness(tuple(parts), all(outcome.answered for outcome in outcomes.values()))


def _keepers_in_use() -> dict[str, LeaseKeeper]:
    """The keepers of the generators that ids were asked of."""
    return {
        alias: made.keeper
        for alias, made in maps.generators.made().items()
        if made.keeper and (made.keeper.lease or made.keeper.trouble)
    }


def _tags_in_use() -> dict[str, TagGenerator]:
    """The generators of a tag of their own that ids were taken of."""
    return {
        alias: made
        for alias, made in maps.generators.made().items()
        if isinstance(made, TagGenerator) and made.stats().loads
    }


def _has_ids_left(keepers: Iterable[LeaseKeeper]) -> bool:
    """Whether all that was used in the last 15 minutes has ids to give out.

    False if nothing ever had any in this process.
    """
    had_any = False
    left = []
    for keeper in keepers:
        had_any |= keeper.lease is not None
        if keeper.seconds_unused < IDLE_AFTER:
            left.append(keeper.seconds_left > 0)
    of_tags = [
        made for made in maps.generators.made().values() if isinstance(made, SegmentGenerator)
    ]
    for made in (*maps.segments.made().values(), *of_tags):
        stats: Any = made.stats()
        if getattr(stats, "loads", 1):  # else it has only been named
            had_any = True
            if getattr(made, "seconds_unused", 0.0) < IDLE_AFTER:
                left.append(getattr(stats, "remaining", 1) > 0)
    return had_any and all(left)


def _of_source(name: str, failure: str | None, lasts: bool) -> Part:
    return Part(name, failure is None or lasts, failure or "The source answers.")


def _of_generator(
    alias: str, keeper: LeaseKeeper, refusal: str | None, trouble: str | None, lasts: bool
) -> Part:
    why = refusal or trouble
    lease = keeper.lease
    held = (
        "no lease" if lease is None else f"worker {lease.worker}, {keeper.seconds_left:.0f} s left"
    )
    ready = refusal is None and (trouble is None or lasts)
    return Part(f"generator:{alias}", ready, f"{why} ({held})" if why else held)


def _failure(probes: Iterable[str], outcomes: Mapping[str, Outcome]) -> str | None:
    """Why all of ``probes`` failed; None if one succeeded, or there is none."""
    found = [outcomes[name] for name in probes]
    if not found or any(outcome.error is None for outcome in found):
        return None
    return " ".join(str(outcome.error) for outcome in found)


def _refusal(keeper: LeaseKeeper, has_probes: bool) -> str | None:
    """Why the process has no usable lease, or has taken itself out."""
    skew = keeper.skewed_by_us
    if skew is not None:
        return f"This host's clock is {skew / 1e6:+.1f} s off the registry's. Correct it (NTP)."
    if keeper.lost and keeper.seconds_left > 0:
        return "The lease is lost; a new one is taken when its window is over."
    trouble = keeper.trouble
    if trouble is None or keeper.seconds_left > 0:
        return None
    passes = isinstance(trouble, (RegistryUnavailable, Expired)) and has_probes
    lasts = isinstance(trouble, ConfigurationError)
    if lasts or (not passes and keeper.seconds_since_trouble < REMEMBERED):
        return str(trouble)
    return None  # the registry answers by now, or it is time to try again


def _shortage(keeper: LeaseKeeper, probes: Mapping[str, Probe]) -> str | None:
    """Why the window may end before it is renewed."""
    space = keeper.namespace
    third = space.window_ticks * space.tick_us / 3e6
    # A holder that renews nothing, or whose registry answers, gets the next lease when it asks.
    if keeper.seconds_left > third or not keeper.renewal_failed or keeper.lost:
        return None
    if probes and keeper.seconds_left == 0:
        return None
    return "The window is nearly over, and the last attempt to renew it failed."
