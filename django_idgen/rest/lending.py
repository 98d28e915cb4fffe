"""Whole segments and worker ids over HTTP, for services that give ids out elsewhere.

=======================================  ====================  =====================
``tags/<tag>/segment``                   GET                   whose ids they would be
``tags/<tag>/segment``                   POST                  take a segment
``generators/<alias>/leases``            GET                   what is lent, and how
``generators/<alias>/leases``            POST                  borrow
``generators/<alias>/leases/renew``      POST                  move the end up
``generators/<alias>/leases/release``    POST                  give back
``generators/<alias>/leases/renew-seen`` POST                  for a scheduler
=======================================  ====================  =====================

A segment comes out of the configured source, never out of what this process has loaded for its
own ids; worker ids come out of the generator's own registry. Each request is granted something
else, also one that a proxy sent twice. What is granted in an answer that gets lost is lost: a
gap, or a lease that expires. A lease's token is in bodies alone: URLs are logged.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
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

from ..core.book import fingerprint_text, lost
from ..core.bounded import keep_newest
from ..core.clock import SYSTEM_CLOCK
from ..core.errors import (
    ClockBeforeEpoch,
    IdgenError,
    LeaseLost,
    NamespaceMismatch,
    SegmentUnavailable,
    TooFarAhead,
)
from ..core.lease import OLD_CLIENTS, Grant, Lease, Namespace
from ..core.registry import Registry
from ..core.segment import LONGEST_STEP, MAX_ID, Demand, Segment
from ..core.segment_allocator import SegmentAllocator
from ..ops.tags.change_log import record
from ..process.handlers import current_settings, segments
from ..process.tags import find_tag, source_behind_pool
from ..settings.config import GeneratorSettings
from .base import IdgenView
from .clients import (
    MOST_LABEL,
    REGISTRIES,
    Owner,
    installation_of_registry,
    installation_of_source,
)
from .failures import Failure, Refused
from .quota import check_quota
from .serializers import (
    Answer,
    Asked,
    Described,
    Mark,
    Operation,
    PrintableText,
    Seconds,
    Shape,
    Shaped,
    WholeNumber,
)
from .tags import check_known
from .throttles import CallerThrottle, ids_throttles

__all__ = [
    "AcquireInput",
    "LeasesView",
    "Lending",
    "ReleaseInput",
    "ReleaseView",
    "RenewInput",
    "RenewSeenInput",
    "RenewSeenView",
    "RenewView",
    "SegmentInput",
    "SegmentView",
]

PATIENCE = 5.0
"""Seconds that a request waits for the source."""
MOST_KNOWN = 10_000
MOST_TOKEN = 128
MOST_WORDS = 64
MOST_AHEAD_US = 3_600_000_000
"""How far past now a client's word moves a window: an hour, as after the service's clock was
put back. One that says more, by mistake or again and again, would use time up for all others. A
holder that is further ahead goes on under another worker id, or starts anew."""


# --- what is asked and answered ------------------------------------------------------

FIELDS: Shape = {
    "type": "array",
    "description": "Each part of an id with its bits, the highest first.",
    "items": {
        "type": "array",
        "items": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "minItems": 2,
        "maxItems": 2,
    },
}
WORKERS: Shape = {
    "type": "array",
    "description": "The first worker id, and the one after the last.",
    "items": {"type": "integer"},
    "minItems": 2,
    "maxItems": 2,
}
NONCE = {"nonce": "9f2c41d07ab35e68"}
OURS = {"installation": "4fd1c3a09b7e4d52a6f0c2d8e1b37a95"}
STANDARD = {
    "fields": [["time", 41], ["worker", 10], ["sequence", 12]],
    "tick_us": 1000,
    "epoch_us": 1735689600000000,
    "workers": [0, 1024],
}
SETTLED = {"fingerprint": STANDARD, "window": "180000", "ahead": "0"}
HELD = {
    "worker": 3,
    "token": "b7c1e0d24f8a4c6f9a35d1e2f0b86c47",  # nosec B105  # an example in the schema
    "start": "13089600517",
    "until": "13089780517",
    "generation": 1,
}


class Fingerprint(Described, serializers.DictField):
    """Everything in which holders must not differ. What differs is refused by its name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_empty=False, **options)

    def shape(self, asked: bool) -> Shape:
        whole = {"type": "integer"}
        return {
            "type": "object",
            "description": "What holders of worker ids must agree on; what is not named is left "
            "out.",
            "properties": {
                "fields": FIELDS,
                "tick_us": {**whole, "description": "Length of a tick in µs."},
                "epoch_us": {**whole, "description": "Where time begins, in µs since 1970."},
                "workers": WORKERS,
            },
            "additionalProperties": {},
            **({"minProperties": 1} if asked else {}),
        }


class LendingInput(Asked):
    """The fields that every request may carry."""

    nonce = PrintableText(max_length=MOST_WORDS, required=False)
    """Comes back in the answer, which can't be mistaken for another one's then."""
    installation = PrintableText(max_length=MOST_WORDS, required=False)
    """Whose ids the client has had so far: it is lent nothing of another one's."""


class SegmentInput(LendingInput):
    """Which segment is wanted."""

    example: ClassVar[Any] = {"tag": "orders", "floor": "4001", "times": 1, "at_least": 1, **NONCE}
    tag = PrintableText(max_length=128, required=False)
    """The tag once more, as no proxy can have changed it."""
    times = WholeNumber(most=1_000_000_000, default=1)
    at_least = WholeNumber(least=1, most=1_000_000_000, default=1)
    floor = WholeNumber(default=0)


class Settled(LendingInput):
    """The settings that a holder must share with this service."""

    fingerprint = Fingerprint()
    window = WholeNumber(least=1)
    """The client's, in ticks: how often it renews follows from that."""
    ahead = WholeNumber(default=0)
    """How far past now the client may stamp (``max_ahead``), in ticks."""


class AcquireInput(Settled):
    """Who borrows a worker id, and from which tick on."""

    example: ClassVar[Any] = {"holder": "web-1", "not_before": "0", **SETTLED, **NONCE}
    holder = PrintableText(max_length=MOST_LABEL, allow_blank=True, default="")
    not_before = WholeNumber(default=0)
    avoid = WholeNumber(most=MAX_ID, allow_null=True, default=None)

    def validate_holder(self, holder: str) -> str:
        if holder.startswith(OLD_CLIENTS):
            raise serializers.ValidationError(
                f"What begins with {OLD_CLIENTS!r} is an instance of CosId, and is known by its "
                f"name alone."
            )
        return holder


class LeaseFields(serializers.Serializer):  # type: ignore[type-arg]
    """A lease, as it was lent. What may not fit a JavaScript number is text."""

    worker = WholeNumber(most=MAX_ID)
    token = PrintableText(
        max_length=MOST_TOKEN, help_text="Lets its holder renew and release: a secret."
    )
    start = Mark(help_text="The first tick that may be stamped.")
    until = Mark(help_text="The first tick that may not.")
    generation = WholeNumber(most=2**31 - 1)


class RenewInput(Settled):
    """Which lease is to go on."""

    example: ClassVar[Any] = {"lease": HELD, "last_tick": "13089660511", **SETTLED, **NONCE}
    lease = LeaseFields()
    last_tick = WholeNumber()


class ReleaseInput(LendingInput):
    """Which lease is given back."""

    example: ClassVar[Any] = {"lease": HELD, **NONCE}
    lease = LeaseFields()


class RenewSeenInput(Settled):
    """Whose leases are to go on."""

    example: ClassVar[Any] = {"idle_after": 600.0, **SETTLED, **NONCE}
    idle_after = Seconds(min_value=0.0, max_value=1e6)


class Terms(Answer):
    """Whose ids are lent."""

    installation = PrintableText(
        help_text="Whose ids these are: two databases give out the same ones. A client that "
        "sends it is lent nothing of another one's."
    )


class Lent(Terms):
    """What each answer says of its request."""

    nonce = PrintableText(
        required=False, help_text="What the request said, for its sender to know it by."
    )


class SegmentTerms(Terms):
    """Whose ids a segment would be."""

    example: ClassVar[Any] = {"tag": "orders", "max_segment": 1000000, **OURS}
    tag = serializers.CharField()
    max_segment = serializers.IntegerField(help_text="Ids that a segment has at most.")


class LentSegment(Lent, SegmentTerms):
    """A segment."""

    example: ClassVar[Any] = {
        **SegmentTerms.example,
        "start": "5001",
        "stop": "6001",
        "step": 1000,
        "delta": 1,
        **NONCE,
    }
    start = Mark(help_text="The first id.")
    stop = Mark(help_text="Past the last id.")
    step = serializers.IntegerField(help_text="The tag's step, as it is now.")
    delta = serializers.IntegerField(help_text="From one id to the next.")


class LayoutTerms(Answer):
    """A layout."""

    name = serializers.CharField()
    fields = Shaped(FIELDS)  # type: ignore[assignment]
    worker_parts = Shaped(FIELDS)
    tick_us = serializers.IntegerField()
    epoch_us = Mark()


class LeaseTerms(Terms):
    """A generator, as its clients have to be set up."""

    example: ClassVar[Any] = {
        "namespace": "default",
        "layout": {
            "name": "standard",
            "fields": STANDARD["fields"],
            "worker_parts": [],
            "tick_us": 1000,
            "epoch_us": "1735689600000000",
        },
        "workers": [0, 1024],
        "window_ticks": "180000",
        "skew_ticks": "1000",
        "ahead_ticks": "0",
        "fingerprint": STANDARD,
        **OURS,
    }
    namespace = serializers.CharField()
    layout = LayoutTerms()
    workers = Shaped(WORKERS)
    window_ticks = Mark()
    skew_ticks = Mark()
    ahead_ticks = Mark()
    fingerprint = Fingerprint()


class LentLease(Lent):
    """A lease."""

    example: ClassVar[Any] = {"lease": HELD, "now_us": "1748779200517000", **OURS, **NONCE}
    lease = LeaseFields()
    now_us = Mark(help_text="The registry's time in µs since 1970.")


class Released(Lent):
    """What became of a lease."""

    example: ClassVar[Any] = {"known": True, **OURS, **NONCE}
    known = serializers.BooleanField(help_text="Whether there was such a lease.")


class RenewedSeen(Lent):
    """What became of leases."""

    example: ClassVar[Any] = {"renewed": 12, **OURS, **NONCE}
    renewed = serializers.IntegerField(help_text="How many leases were.")


# --- views ---------------------------------------------------------------------------

REFUSED = (409, 429)


class LendingView(IdgenView):
    """A grant a request: one that is sent twice is granted twice, and never the same."""

    group = "lending"

    def check_installation(self, asked: dict[str, Any], ours: str) -> None:
        """Refuse a client that was lent by another database before: ids would repeat.

        Notes ``ours`` in ``asked``, for the answer.
        """
        theirs = asked.setdefault("installation", ours)
        if theirs != ours:
            raise refused(
                "installation_mismatch",
                f"This service lends for installation {ours}, but the client was lent by "
                f"{theirs} before: another database, which gives out the same ids.",
                installation=ours,
                expected=theirs,
            )

    def answer(self, asked: dict[str, Any], **values: object) -> Response:
        """200, with whose ids these are, and the nonce that names the request."""
        echoed = {name: asked[name] for name in ("installation", "nonce") if name in asked}
        return self.respond({**values, **echoed})

    def handle_exception(self, exc: Exception) -> Response:
        return super().handle_exception(_clients_own(exc))


def refused(code: str, detail: str, *, status: int = 409, **values: object) -> Refused:
    """Nothing was lent, and asking again won't help; ``values`` say what doesn't fit."""
    return Refused(Failure(status, code, detail, values=values))


def _clients_own(exc: Exception) -> Exception:
    """What is the client's own matter, and not our fault: it may be asked a thousand times."""
    if isinstance(exc, NamespaceMismatch):
        return refused(
            "namespace_mismatch",
            str(exc),
            namespace=exc.namespace,
            setting=exc.setting,
            stored=exc.stored,
            configured=exc.configured,
        )
    if isinstance(exc, TooFarAhead):
        return refused("too_far_ahead", str(exc), asked=str(exc.tick), latest=str(exc.latest))
    if isinstance(exc, LeaseLost):
        return refused("lease_lost", "This lease is not known any more. Take a new one.")
    if isinstance(exc, ClockBeforeEpoch):
        return Refused(Failure(503, "clock_before_epoch", str(exc), retry_after=5))
    return exc


class SegmentView(LendingView):
    """A whole segment of a tag, for a client that gives its ids out."""

    def get_throttles(self) -> list[BaseThrottle]:
        return [kind() for kind in ids_throttles()]

    def check_permissions(self, request: Request) -> None:
        # Before any throttle counts it against those who may.
        super().check_permissions(request)
        if "tag" in self.kwargs:  # a schema is made without one
            self.caller.check_segments_of(self.kwargs["tag"])

    @Operation(
        name="segment_terms",
        summary="Whose ids a segment of a tag would be; nothing is taken",
        answer=SegmentTerms,
        errors=REFUSED,
    )
    def get(self, request: Request, tag: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Whose ids a segment of the tag would be; nothing is taken."""
        check_known(tag)
        installation = installation_of_source(segments.allocator().source, tag)
        most = current_settings().rest.max_segment
        return self.respond({"tag": tag, "installation": installation, "max_segment": most})

    @Operation(
        name="take_segment",
        summary="Take a whole segment of a tag, to give its ids out elsewhere",
        description="`floor` is the end of the highest segment that the client has had; `times` "
        "how many steps it would like (0: none), `at_least` how many ids. A user needs the "
        "permission to change tags. A floor that skips more than the setting max_skip is "
        "refused: 403 with the code `skip_too_far`.",
        body=SegmentInput,
        answer=LentSegment,
        errors=REFUSED,
    )
    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Take one. Answered late, or sent twice by a proxy, it is another one each time."""
        asked = self.read()
        most = current_settings().rest.max_segment
        _check(tag, asked, most)
        check_known(tag)
        allocator = segments.allocator()
        allocator.check_process()
        self.check_installation(asked, installation_of_source(allocator.source, tag))
        lending = Lending(allocator, tag, most)
        stood = lending.stands_below(asked["floor"])
        segment = lending.take(Demand(asked["times"], asked["at_least"]), asked["floor"])
        if stood is not None:
            record(self.caller.user, tag, "skipped", max_id=(stood, segment.start))
        return self.answer(
            asked,
            tag=segment.tag,
            start=segment.start,
            stop=segment.stop,
            step=segment.step,
            delta=segment.delta,
            max_segment=most,
        )


def _check(tag: str, asked: dict[str, Any], most: int) -> None:
    if asked.get("tag", tag) != tag:
        # A proxy has merged slashes, or decoded once too often: not the tag that was meant.
        raise ValidationError({"tag": [f"The URL says {tag!r}, the body {asked['tag']!r}."]})
    if asked["at_least"] > most:
        raise ValidationError({"at_least": [f"A segment has {most} ids at most (max_segment)."]})


def skip_too_far(tag: str, *, max_id: int, floor: int, max_skip: int) -> Refused:
    """A tag that stands at ``max_id`` would skip more than ``max_skip`` ids for a floor."""
    return refused(
        "skip_too_far",
        f"Tag {tag!r} stands at {max_id}. To give only ids from {floor} on it would skip "
        f"{floor - max_id}, and a request may skip {max_skip} (max_skip). If the database was "
        f"put back to an earlier state, an operator runs 'manage.py idgen_skip "
        f"{quote(tag)} --to {floor}'.",
        status=403,
        tag=tag,
        max_id=str(max_id),
        floor=str(floor),
        max_skip=str(max_skip),
    )


class LeaseView(LendingView):
    """Of one generator, for programs whose token names it in ``leases``."""

    throttle_classes = ()
    """None for renewals: a holder that is refused one has to stop, though it keeps every limit."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        alias = kwargs["alias"]
        if not self.caller.may_borrow_of_generator(alias):
            raise PermissionDenied
        if alias not in current_settings().generators:
            raise NotFound(f"There is no generator {alias!r}.")
        self.alias: str = alias

    @property
    def registry(self) -> Registry:
        return REGISTRIES[self.alias]

    def read(self) -> dict[str, Any]:
        """As for any view; refuses a client that is set up for other ids than these."""
        asked = super().read()
        if "fingerprint" in asked:
            self.check_settled(asked)
        self.check_installation(asked, installation_of_registry(self.registry))
        return asked

    def granted(self, asked: dict[str, Any], grant: Grant) -> Response:
        return self.answer(asked, lease=grant.lease, now_us=grant.reading.registry_us)

    def check_settled(self, asked: dict[str, Any]) -> None:
        """Refuse a client whose settings are not the registry's."""
        space = self.registry.namespace
        check_fingerprint(space, asked["fingerprint"])
        for name, ours in (("window", space.window_ticks), ("ahead", space.ahead_ticks)):
            if asked[name] > ours:
                raise refused(
                    "settings_differ",
                    f"{_SETTINGS[name]} of the client is {asked[name]} ticks of {space.tick_us} "
                    f"µs, and that of generator {self.alias!r} of the service {ours}. The "
                    f"client's can't be more: lower it there, or raise it in the service.",
                    setting=name,
                    stored=ours,
                    configured=asked[name],
                )


class LeasesView(LeaseView):
    """What is lent, and borrowing it."""

    def get_throttles(self) -> list[BaseThrottle]:
        # This app's own throttle does not count questions.
        known: list[Any] = [*api_settings.DEFAULT_THROTTLE_CLASSES]
        own = [CallerThrottle] if self.request.method == "POST" else []
        return [kind() for kind in (*known, *own)]

    @Operation(
        name="lease_terms",
        summary="What a client of worker ids has to be set up with",
        answer=LeaseTerms,
        errors=REFUSED,
    )
    def get(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """All that a client needs to make the very same ids."""
        return self.respond(describe(current_settings().generators[alias], self.registry))

    @Operation(
        name="borrow_worker",
        summary="Borrow a worker id",
        description="`not_before` is the tick after the last one that the client has stamped; "
        "`avoid` a worker id that it does not want back.",
        body=AcquireInput,
        answer=LentLease,
        errors=REFUSED,
    )
    def post(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        asked = self.read()
        self.check_not_before(asked["not_before"])
        owner = Owner.of(self.caller.token)
        check_quota(self.registry, self.alias, owner)
        grant = self.registry.acquire(
            # The worker id that a holder had comes back to tokens of that name alone.
            holder=owner.label(asked["holder"]),
            not_before=asked["not_before"],
            avoid=asked["avoid"],
        )
        return self.granted(asked, grant)

    def check_not_before(self, tick: int) -> None:
        """Refuse a client that asks for later and later windows, each from the last one's end.

        After any loss a fence lies at most two windows past where holders can have come.
        """
        space = self.registry.namespace
        latest = latest_tick(space) + 3 * space.lead_ticks
        if tick > latest:
            raise refused(
                "too_far_ahead",
                f"not_before is tick {tick}, and may be {latest} at most: an hour past now. See "
                f"whether the clocks of the service and its database are right. A client that is "
                f"started anew begins at the service's time.",
                asked=str(tick),
                latest=str(latest),
            )


class RenewView(LeaseView):
    """Moving the end of a window up."""

    @Operation(
        name="renew_lease",
        summary="Move the end of a borrowed worker id's window up",
        body=RenewInput,
        answer=LentLease,
        errors=REFUSED,
        examples={200: {**LentLease.example, "lease": {**HELD, "until": "13089840517"}}},
    )
    def post(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        asked = self.read()
        space = self.registry.namespace
        lease = Lease(space.name, **asked["lease"])
        if not is_possible(lease, space):
            raise lost(lease)
        latest = latest_tick(space)
        grant = self.registry.renew(lease, last_tick=min(asked["last_tick"], latest))
        return self.granted(asked, grant)


class ReleaseView(LeaseView):
    """Giving a worker id back."""

    @Operation(
        name="release_lease",
        summary="Give a borrowed worker id back",
        body=ReleaseInput,
        answer=Released,
        errors=REFUSED,
    )
    def post(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        asked = self.read()
        space = self.registry.namespace
        lease = Lease(space.name, **asked["lease"])
        # The end stays where it is stored: which tick a client came to is its word alone.
        known = is_possible(lease, space) and self.registry.release(
            lease, last_tick=space.max_ticks
        )
        return self.answer(asked, known=known)


class RenewSeenView(LeaseView):
    """For a scheduler on the client's side; the service's own does the same."""

    @Operation(
        name="renew_seen_leases",
        summary="Renew all that was borrowed by holders seen lately",
        body=RenewSeenInput,
        answer=RenewedSeen,
        errors=REFUSED,
    )
    def post(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        asked = self.read()
        # No longer than the service's own scheduler would: a lost holder's lease expires.
        most = current_settings().generators[self.alias].idle_after
        renewed = self.registry.renew_seen(idle_after=min(asked["idle_after"], most))
        return self.answer(asked, renewed=renewed)


def check_fingerprint(space: Namespace, theirs: dict[str, Any]) -> None:
    """Raise :class:`NamespaceMismatch` naming the first setting in which a client differs.

    But for the kind of its registry: it has none of its own, and is lent by ours.
    """
    ours = _comparable(space)
    given = {key: value for key, value in theirs.items() if key != "registry"}
    if "workers" in given:  # which a registry with workers of its own leaves out
        ours.setdefault("workers", [space.workers.start, space.workers.stop])
    for key in sorted(ours.keys() | given.keys()):
        if ours.get(key) != given.get(key):
            raise NamespaceMismatch(space.name, key, ours.get(key), given.get(key))


def describe(entry: GeneratorSettings, registry: Registry) -> dict[str, Any]:
    """A generator, as its clients have to be set up."""
    space = registry.namespace
    layout = entry.layout
    return {
        "namespace": space.name,
        "layout": {
            "name": layout.name,
            "fields": [list(pair) for pair in layout.fields],
            "worker_parts": [list(pair) for pair in layout.worker_parts],
            "tick_us": layout.tick_us,
            "epoch_us": layout.epoch_us,
        },
        "workers": [space.workers.start, space.workers.stop],
        "window_ticks": space.window_ticks,
        "skew_ticks": space.skew_ticks,
        "ahead_ticks": space.ahead_ticks,
        "fingerprint": _comparable(space),
        "installation": installation_of_registry(registry),
    }


def latest_tick(space: Namespace) -> int:
    """The last tick that a client's word is believed to have come to."""
    return space.tick_at(SYSTEM_CLOCK.wall_ns() // 1000 + MOST_AHEAD_US)


def is_possible(lease: Lease, space: Namespace) -> bool:
    """Whether it can ever have been lent: a database may have no column for what can't."""
    return lease.worker in space.workers and lease.start <= lease.until <= space.max_ticks


def _comparable(space: Namespace) -> dict[str, Any]:
    ours: dict[str, Any] = json.loads(fingerprint_text(space.fingerprint))
    ours.pop("registry", None)
    return ours


_SETTINGS = {"window": "'window'", "ahead": "'max_ahead'"}


# --- segments out of a source ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """What this process has seen of a tag."""

    end: int
    """Of the highest segment that was taken: the tag stands there, or above."""
    step: int


class Lending:
    """One segment out of the source of ``allocator``, of ``most`` ids at the most."""

    def __init__(self, allocator: SegmentAllocator, tag: str, most: int) -> None:
        self._allocator = allocator
        self._tag = tag
        self._most = most

    def take(self, demand: Demand, floor: int) -> Segment:
        """Raises :class:`~.failures.Refused` for a floor that would skip more than ``max_skip``."""
        demand = self._bounded(demand)
        if floor <= MAX_ID:  # past it the source says so itself
            reached = self._checked(floor)
            if reached is not None:
                return self._cut(reached)
        return self._cut(self._fetched(floor, demand))

    def stands_below(self, floor: int) -> int | None:
        """Where the tag stands, if ``floor`` moves it; None if not, or if it can't be known here.

        Databases that share a tag stand at different heights, which moves none of them.
        """
        seen = _seen_of(self._allocator, self._tag)
        if floor <= (seen.end if seen else 1):
            return None
        try:
            source = source_behind_pool()
            if not source.keeps_rows or len(source.route(self._tag)) > 1:
                return None
            found = find_tag(self._tag)
        except IdgenError:
            return None  # whether there are ids is said by the fetch
        stands = 1 if found is None else found.max_id
        return stands if stands < floor else None

    def _bounded(self, demand: Demand) -> Demand:
        """``demand`` with no more ids than may be lent, as far as the step is known."""
        if self._most >= LONGEST_STEP:
            return demand
        seen = _seen_of(self._allocator, self._tag)
        times = 1 if seen is None else max(1, self._most // seen.step)
        return Demand(min(demand.times, times), demand.at_least)

    def _checked(self, floor: int) -> Segment | None:
        """See that ``floor`` lies not too far above what was taken of the tag.

        A process that does not know where the tag stands takes a segment to find out,
        which may do already.
        """
        skip = current_settings().rest.max_skip
        seen = _seen_of(self._allocator, self._tag)
        if floor <= (seen.end if seen else 1) + skip:
            return None
        # Not from a pool: what lies there may be old.
        probe = self._fetched(0, Demand(), behind=True)
        if probe.start >= floor:
            return probe
        if floor > probe.stop + skip:
            raise skip_too_far(self._tag, max_id=probe.stop, floor=floor, max_skip=skip)
        return None

    def _fetched(self, floor: int, demand: Demand, *, behind: bool = False) -> Segment:
        source = self._allocator.source.behind if behind else self._allocator.source
        job = partial(source.fetch, self._tag, floor=floor, demand=demand)
        segment = _awaited(self._allocator.loader.submit(job, urgent=True), self._tag)
        _note(self._allocator, segment)
        return segment

    def _cut(self, segment: Segment) -> Segment:
        ids = segment.ids()
        if len(ids) <= self._most:
            return segment
        kept = ids[: self._most]
        # To the pool where there is one, else a gap: the row's step is more than may be lent.
        self._allocator.give_back(self._tag, [ids[self._most :]])
        return Segment(segment.tag, kept.start, kept[-1] + 1, segment.step, segment.delta)


def _awaited(future: Future[Segment], tag: str) -> Segment:
    try:
        return future.result(PATIENCE)
    except FutureTimeout:
        future.cancel()  # one that has not begun takes nothing
        raise SegmentUnavailable(
            f"The source of tag {tag!r} did not answer for {PATIENCE:g} s. See what holds it up."
        ) from None


_seen: WeakKeyDictionary[SegmentAllocator, dict[str, _Seen]] = WeakKeyDictionary()
"""By tag, of the allocator that the settings of now have made."""


def _seen_of(allocator: SegmentAllocator, tag: str) -> _Seen | None:
    return _seen.get(allocator, {}).get(tag)


def _note(allocator: SegmentAllocator, segment: Segment) -> None:
    known = _seen.setdefault(allocator, {})
    before = known.get(segment.tag)
    end = segment.stop if before is None else max(segment.stop, before.end)
    keep_newest(known, segment.tag, _Seen(end, segment.step), most=MOST_KNOWN)
