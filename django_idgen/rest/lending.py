"""Whole segments and worker ids over HTTP, for services that give ids out elsewhere.

=======================================  ====================  =====================
``tags/<tag>/segment``                   GET                   terms: whose ids, how many
``tags/<tag>/segment``                   POST                  take a segment
``generators/<alias>/leases``            GET                   terms: the settings to share
``generators/<alias>/leases``            POST                  borrow a worker id
``generators/<alias>/leases/renew``      POST                  move the window's end up
``generators/<alias>/leases/release``    POST                  give the worker id back
``generators/<alias>/leases/renew-seen`` POST                  for a scheduler
=======================================  ====================  =====================

A segment comes from the configured source, never from the segments that this process holds. Worker
ids come from the generator's registry. Each request gets another grant, also one that a proxy
repeats. A grant whose answer is lost is lost: a gap, or a lease that expires. A lease's token is
sent in bodies only, since servers log URLs.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from rest_framework import serializers
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ..core.book import first_difference, lost, without_registry
from ..core.bounded import keep_newest
from ..core.clock import SYSTEM_CLOCK
from ..core.errors import (
    ClockBeforeEpoch,
    IdgenError,
    LeaseLost,
    NamespaceMismatch,
    RegistryUnavailable,
    SegmentUnavailable,
    TooFarAhead,
)
from ..core.lease import OLD_CLIENTS, Grant, Lease, Namespace
from ..core.registry import Registry
from ..core.segment import LONGEST_STEP, MAX_ID, Demand, Segment
from ..core.segment_generator import SegmentAllocator
from ..core.source import Source
from ..ops.tags.change_log import record
from ..process.maps import current_settings, registries, segments
from ..process.tags import find_tag, next_free_id, source_behind_pool
from ..signals import lease_acquired, log_event
from .authentication import CallerThrottle, ids_throttles
from .base import IdgenView
from .clients import (
    MOST_LABEL,
    Owner,
    check_quota,
    installation_of_registry,
    installation_of_source,
)
from .failures import Refusal
from .serializers import Mark, Seconds, Text
from .tags import check_known

PATIENCE = 5.0
"""Seconds that a request waits for the source."""
MOST_KNOWN = 10_000
MOST_TOKEN = 128
MOST_TEXT = 64


# --- requests and answers --------------------------------------------------------------


class LendingInput(serializers.Serializer):  # type: ignore[type-arg]
    """The fields of every request."""

    nonce = Text(max_length=MOST_TEXT, required=False)
    """The answer repeats it, so that a client can't take another answer for it."""
    installation = Text(max_length=MOST_TEXT, required=False)
    """The installation that lent to the client before. The client gets nothing of another one."""


class SegmentInput(LendingInput):
    """Which segment to take."""

    tag = Text(max_length=128, required=False, help_text="Once more, where no proxy changes it.")
    times = serializers.IntegerField(min_value=0, max_value=1_000_000_000, default=1)
    at_least = serializers.IntegerField(min_value=1, max_value=1_000_000_000, default=1)
    floor = Mark(default=0)
    granted = Mark(
        required=False,
        help_text="The end of the highest segment, if the floor lies above it: at the client's "
        "loaded rows.",
    )


class SettingsInput(LendingInput):
    """The settings that a holder must share with this service."""

    fingerprint = serializers.DictField(allow_empty=False)
    window = Mark(min_value=1)
    """The client's window in ticks, which sets how often it renews."""
    ahead = Mark(default=0)
    """How far past now the client may stamp (``max_ahead``), in ticks."""


class AcquireInput(SettingsInput):
    """The borrower of a worker id, and its first tick."""

    holder = Text(max_length=MOST_LABEL, allow_blank=True, default="")
    not_before = Mark(default=0)
    avoid = Mark(max_value=MAX_ID, allow_null=True, default=None)

    def validate_holder(self, holder: str) -> str:
        if holder.startswith(OLD_CLIENTS):
            raise serializers.ValidationError(
                f"{OLD_CLIENTS!r} is the start of the names of CosId's instances, which have no "
                "token."
            )
        return holder


class LeaseFields(serializers.Serializer):  # type: ignore[type-arg]
    """A lease. Numbers that JavaScript may not read exactly are text."""

    worker = serializers.IntegerField(min_value=0, max_value=MAX_ID)
    token = Text(max_length=MOST_TOKEN, help_text="Lets its holder renew and release: a secret.")
    start = Mark(help_text="The first tick that may be stamped.")
    until = Mark(help_text="The first tick that may not.")
    generation = serializers.IntegerField(min_value=0, max_value=2**31 - 1)


class RenewInput(SettingsInput):
    """Which lease to renew."""

    lease = LeaseFields()
    last_tick = Mark()


class ReleaseInput(LendingInput):
    """Which lease to give back."""

    lease = LeaseFields()


class RenewSeenInput(SettingsInput):
    """Which leases to renew."""

    idle_after = Seconds(min_value=0.0, max_value=1e6)


class Lent(serializers.Serializer):  # type: ignore[type-arg]
    """What each grant repeats of its request."""

    installation = serializers.CharField(help_text="The database that the ids come from.")
    nonce = serializers.CharField(required=False)


class LentSegment(Lent):
    """A segment."""

    tag = serializers.CharField()
    start = Mark(help_text="The first id.")
    stop = Mark(help_text="Past the last id.")
    step = serializers.IntegerField(help_text="The tag's step, as it is now.")
    delta = serializers.IntegerField(help_text="From one id to the next.")
    max_segment = serializers.IntegerField(help_text="Ids that a segment has at most.")


class LentLease(Lent):
    """A lease."""

    lease = LeaseFields()
    now_us = Mark(help_text="The registry's time in µs since 1970.")


# --- views -----------------------------------------------------------------------------


class LendingView(IdgenView):
    """A grant for each request: one that is sent twice gets two different grants."""

    def check_installation(self, asked: dict[str, Any], ours: str) -> None:
        """Refuse a client that borrowed from another database before: ids would repeat.

        Adds ``ours`` to ``asked``, for the answer.
        """
        theirs = asked.setdefault("installation", ours)
        if theirs != ours:
            raise Refusal(
                409,
                "installation_mismatch",
                f"This service lends for installation {ours}, but the client has ids of "
                f"{theirs}: another database, which may give out the same ids.",
                installation=ours,
                expected=theirs,
            )

    def answer(self, asked: dict[str, Any], **values: object) -> Response:
        """200, with the installation, and the nonce of the request."""
        found = {name: asked[name] for name in asked if name in ("installation", "nonce")} | values
        kind: Any = self.answers.get(self.action)
        return Response(found if kind is None else kind(found).data)

    def handle_exception(self, exc: Exception) -> Response:
        return super().handle_exception(_client_error(exc) or exc)


def _client_error(exc: Exception) -> Refusal | None:
    """The answer to a client's own error, with more details and without an entry in the log."""
    if isinstance(exc, NamespaceMismatch):
        return Refusal(
            409,
            "namespace_mismatch",
            str(exc),
            namespace=exc.namespace,
            setting=exc.setting,
            stored=exc.stored,
            configured=exc.configured,
        )
    if isinstance(exc, TooFarAhead):
        asked, latest = str(exc.tick), str(exc.latest)
        return Refusal(409, "too_far_ahead", str(exc), asked=asked, latest=latest)
    if isinstance(exc, LeaseLost):
        text = "This lease is not known any more. Take a new one."
        return Refusal(409, "lease_lost", text)
    if isinstance(exc, ClockBeforeEpoch):
        return Refusal(503, "clock_before_epoch", str(exc), wait=5)
    return None


class SegmentView(LendingView):
    """A whole segment of a tag, for a client that gives its ids out."""

    inputs: ClassVar[Any] = {"take": SegmentInput}
    answers: ClassVar[Any] = {"take": LentSegment}

    def get_throttles(self) -> list[BaseThrottle]:
        return [kind() for kind in ids_throttles()]

    def check_permissions(self, request: Request) -> None:
        # Before any throttle, so that a refusal doesn't count against other callers.
        super().check_permissions(request)
        if "tag" in self.kwargs:  # drf-spectacular makes a schema without one
            self.caller.check_segments_of(self.kwargs["tag"])

    def terms(self, request: Request, tag: str, **_kwargs: str) -> Response:
        """Show which installation a segment would come from, without taking one.

        With ``?max_id=1`` also the tag's next free id, which lies above all that is in a pool.
        """
        check_known(tag)
        installation = installation_of_source(segments.allocator().source, tag)
        most = current_settings().rest.max_segment
        shown = {"tag": tag, "installation": installation, "max_segment": most}
        if "max_id" in request.query_params:
            source = source_behind_pool()
            free = next_free_id(tag) if source.keeps_rows else source.next_free_id(tag)
            shown["max_id"] = str(free)
        return Response(shown)

    def take(self, request: Request, tag: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Take a segment above ``floor``, of ``times`` steps and ``at_least`` so many ids."""
        asked = self.read()
        most = current_settings().rest.max_segment
        if asked.get("tag", tag) != tag:
            # A proxy has merged slashes, or decoded twice.
            raise ValidationError({"tag": [f"The URL says {tag!r}, the body {asked['tag']!r}."]})
        if asked["at_least"] > most:
            raise ValidationError(
                {"at_least": [f"A segment has {most} ids at most (max_segment)."]}
            )
        check_known(tag)
        lending = Lending(tag, most)
        self.check_installation(asked, installation_of_source(lending.source, tag))
        moved_from = lending.moved_from(asked["floor"])
        demand = Demand(asked["times"], asked["at_least"], asked.get("granted"))
        segment = lending.take(demand, asked["floor"])
        if moved_from is not None:
            record(self.caller.user, tag, "skipped", max_id=(moved_from, segment.start))
        return self.answer(
            asked,
            tag=segment.tag,
            start=segment.start,
            stop=segment.stop,
            step=segment.step,
            delta=segment.delta,
            max_segment=most,
        )


class LeaseView(LendingView):
    """The worker ids of one generator, for programs whose token names it in ``leases``."""

    for_users = False
    inputs: ClassVar[Any] = {
        "borrow": AcquireInput,
        "renew": RenewInput,
        "release": ReleaseInput,
        "renew_seen": RenewSeenInput,
    }
    answers: ClassVar[Any] = {"borrow": LentLease, "renew": LentLease}

    def get_throttles(self) -> list[BaseThrottle]:
        # Never of renewals: a holder that is refused has to stop, though it keeps every limit.
        known: list[Any] = []
        if self.action in ("terms", "borrow"):
            known += api_settings.DEFAULT_THROTTLE_CLASSES
        if self.action == "borrow":
            known.append(CallerThrottle)
        return [kind() for kind in known]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        alias = kwargs["alias"]
        if not self.caller.may_borrow_of_generator(alias):
            raise PermissionDenied(
                f"To borrow worker ids of generator {alias!r}, you need an access token that "
                "names it in 'leases' ('idgen_token --leases')."
            )
        if alias not in current_settings().generators:
            raise NotFound(f"There is no generator {alias!r}.")
        self.alias: str = alias
        self.registry: Registry = registries[alias]

    def read(self) -> dict[str, Any]:
        """The input. Refuses a client that has other settings, or another installation."""
        asked = super().read()
        if "fingerprint" in asked:
            self.check_settings(asked)
        self.check_installation(asked, installation_of_registry(self.registry))
        return asked

    def granted(self, asked: dict[str, Any], grant: Grant) -> Response:
        return self.answer(asked, lease=grant.lease, now_us=grant.reading.registry_us)

    def check_settings(self, asked: dict[str, Any]) -> None:
        """Refuse a client whose settings are not the registry's."""
        space = self.registry.namespace
        check_fingerprint(space, asked["fingerprint"])
        for name, setting, ours in (
            ("window", "window", space.window_ticks),
            ("ahead", "max_ahead", space.ahead_ticks),
        ):
            if asked[name] > ours:
                raise Refusal(
                    409,
                    "settings_differ",
                    f"{setting!r} of the client is {asked[name]} ticks of {space.tick_us} µs, "
                    f"and that of generator {self.alias!r} of the service {ours}. The client's "
                    f"can't be more: lower it there, or raise it in the service.",
                    setting=name,
                    stored=ours,
                    configured=asked[name],
                )

    def terms(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Show the settings that a client of worker ids needs."""
        space = self.registry.namespace
        layout = current_settings().generators[alias].layout
        return Response(
            {
                "namespace": space.name,
                "layout": {
                    "name": layout.name,
                    "fields": [list(pair) for pair in layout.fields],
                    "worker_parts": [list(pair) for pair in layout.worker_parts],
                    "tick_us": layout.tick_us,
                    "epoch_us": str(layout.epoch_us),
                },
                "workers": [space.workers.start, space.workers.stop],
                "window_ticks": str(space.window_ticks),
                "skew_ticks": str(space.skew_ticks),
                "ahead_ticks": str(space.ahead_ticks),
                "fingerprint": without_registry(space.fingerprint),
                "installation": installation_of_registry(self.registry),
            }
        )

    def borrow(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Borrow a worker id."""
        asked = self.read()
        self.check_not_before(asked["not_before"])
        owner = Owner.of(self.caller.token)
        check_quota(self.registry, self.alias, owner)
        # Only tokens of the same name get back the worker id that the holder had.
        holder = owner.label(asked["holder"])
        grant = self.registry.acquire(
            holder=holder, not_before=asked["not_before"], avoid=asked["avoid"]
        )
        log_event(lease_acquired, lease=grant.lease, holder=holder)
        return self.granted(asked, grant)

    def check_not_before(self, tick: int) -> None:
        """Refuse a client that asks for ever later windows, each from the end of the last."""
        # As far as a window ends that was renewed at the latest tick that counts.
        latest = latest_tick(self.registry, tick) + self.registry.namespace.lead_ticks
        if tick > latest:
            raise Refusal(
                409,
                "too_far_ahead",
                f"not_before is tick {tick}, and may be {latest} at most: two windows past now. "
                "Check the clocks of the service and its database. A client that is restarted "
                "begins at the service's time.",
                asked=str(tick),
                latest=str(latest),
            )

    def renew(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Extend the window of a borrowed worker id."""
        asked = self.read()
        space = self.registry.namespace
        lease = Lease(space.name, **asked["lease"])
        if not is_possible(lease, space):
            raise lost(lease)
        tick = asked["last_tick"]
        grant = self.registry.renew(lease, last_tick=min(tick, latest_tick(self.registry, tick)))
        return self.granted(asked, grant)

    def release(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Give a borrowed worker id back."""
        asked = self.read()
        space = self.registry.namespace
        lease = Lease(space.name, **asked["lease"])
        # Keep the stored end: the client's last tick proves nothing.
        known = is_possible(lease, space) and self.registry.release(
            lease, last_tick=space.max_ticks
        )
        return self.answer(asked, known=known)

    def renew_seen(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """For a scheduler on the client's side: renew what was seen lately."""
        asked = self.read()
        # No longer than the service's scheduler would, so that a dead holder's lease expires.
        most = current_settings().generators[self.alias].idle_after
        renewed = self.registry.renew_seen(idle_after=min(asked["idle_after"], most))
        return self.answer(asked, renewed=renewed)


def check_fingerprint(space: Namespace, theirs: dict[str, Any]) -> None:
    """Raise :class:`NamespaceMismatch` for the first setting in which a client differs.

    The kind of its registry doesn't count: the client borrows from this one.
    """
    ours, given = without_registry(space.fingerprint), without_registry(theirs)
    if "workers" in given:  # a registry with workers of its own leaves it out
        ours.setdefault("workers", [space.workers.start, space.workers.stop])
    difference = first_difference(ours, given)
    if difference is not None:
        raise NamespaceMismatch(space.name, *difference)


def latest_tick(registry: Registry, tick: int) -> int:
    """The highest tick that counts of a client which claims to have stamped ``tick``.

    A window past now, or past the fence of a loss: a higher tick, claimed again and again, would
    move the stamps of all others ahead after the next loss.
    """
    space = registry.namespace
    now = space.tick_at(SYSTEM_CLOCK.wall_ns() // 1000)
    book = registry.stored_book() if tick > now + space.reach_ticks else None
    if book is not None:
        with suppress(RegistryUnavailable):  # the registry itself may do without its database
            stored = book.read()
            now = max(now, stored.fence) if stored else now
    return now + space.reach_ticks


def is_possible(lease: Lease, space: Namespace) -> bool:
    """Whether the lease can exist: a database may have no column for other values."""
    return lease.worker in space.workers and lease.start <= lease.until <= space.max_ticks


# --- segments --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """What this process knows of a tag."""

    end: int
    """The end of the highest segment taken: the tag's mark is there, or above."""
    step: int


class Lending:
    """Takes one segment of ``tag`` from the configured source, of ``most`` ids at most."""

    def __init__(self, tag: str, most: int) -> None:
        self._allocator = segments.allocator()
        self._allocator.check_process()
        self.source = self._allocator.source
        self._tag = tag
        self._most = most

    def take(self, demand: Demand, floor: int) -> Segment:
        """Raises :class:`~.failures.Refusal` if ``floor`` would skip more than ``max_skip``."""
        if self._most < LONGEST_STEP:
            seen = self._seen()
            times = 1 if seen is None else max(1, self._most // seen.step)
            demand = replace(demand, times=min(demand.times, times))
        if floor <= MAX_ID:  # past it the source raises an error
            probe = self._check_floor(floor)
            if probe is not None:
                return self._cut(probe)
        return self._cut(self._fetch(self.source, floor, demand))

    def moved_from(self, floor: int) -> int | None:
        """The tag's mark, if ``floor`` moves it; None if not, or if that can't be known here.

        Databases that share a tag have different marks, which move none of the others.
        """
        seen = self._seen()
        if floor <= (seen.end if seen else 1):
            return None
        try:
            source = source_behind_pool()
            if not source.keeps_rows or len(source.route(self._tag)) > 1:
                return None
            found = find_tag(self._tag)
        except IdgenError:
            return None  # the fetch will raise it
        mark = 1 if found is None else found.max_id
        return mark if mark < floor else None

    def _check_floor(self, floor: int) -> Segment | None:
        """Check that ``floor`` is not too far above the tag's mark.

        If this process doesn't know the mark, it takes a segment to learn it. Returns that
        segment if it is high enough.
        """
        skip = current_settings().rest.max_skip
        seen = self._seen()
        if floor <= (seen.end if seen else 1) + skip:
            return None
        # Not from a pool, whose segments may be old.
        probe = self._fetch(self.source.behind, 0, Demand())
        if probe.start >= floor:
            return probe
        if floor > probe.stop + skip:
            raise Refusal(
                403,
                "skip_too_far",
                f"The next id of tag {self._tag!r} is {probe.stop}. The client wants ids from "
                f"{floor} on. That would skip {floor - probe.stop}, but a request may skip at "
                f"most {skip} (max_skip). If the database was restored to an earlier state, run "
                f"'manage.py idgen_skip {quote(self._tag)} --to {floor}'.",
                tag=self._tag,
                max_id=str(probe.stop),
                floor=str(floor),
                max_skip=str(skip),
            )
        return None

    def _fetch(self, source: Source, floor: int, demand: Demand) -> Segment:
        job = partial(source.fetch, self._tag, floor=floor, demand=demand)
        future = self._allocator.loader.submit(job, urgent=True)
        try:
            segment = future.result(PATIENCE)
        except FutureTimeout:
            future.cancel()  # if it has not begun, it takes nothing
            raise SegmentUnavailable(
                f"The source of tag {self._tag!r} did not answer for {PATIENCE:g} s. Find out "
                "what blocks it."
            ) from None
        seen = self._seen()
        end = segment.stop if seen is None else max(segment.stop, seen.end)
        known = _seen.setdefault(self._allocator, {})
        keep_newest(known, self._tag, _Seen(end, segment.step), most=MOST_KNOWN)
        return segment

    def _seen(self) -> _Seen | None:
        return _seen.get(self._allocator, {}).get(self._tag)

    def _cut(self, segment: Segment) -> Segment:
        ids = segment.ids()
        if len(ids) <= self._most:
            return segment
        kept = ids[: self._most]
        # The row's step is more than may be lent. The rest goes to the pool, or is a gap.
        self._allocator.give_back(self._tag, [ids[self._most :]])
        return Segment(segment.tag, kept.start, kept[-1] + 1, segment.step, segment.delta)


_seen: WeakKeyDictionary[SegmentAllocator, dict[str, _Seen]] = WeakKeyDictionary()
"""By allocator, of which new settings make a new one; then by tag."""
