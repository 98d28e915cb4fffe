"""Answers as CosId's proxy server does: ``path("", include(cosid.urls()))``.

==================================================  ==================================
``GET ids``, ``ids/<name>``                         the next id, a number
``GET ids/as-string``, ``ids/as-string/<name>``     the same as text
``POST machines/<ns>``                              a machine id:
                                                    ``{"machineId":0,"lastTimeStamp":…}``
``PATCH machines/<ns>``                             keep it (each minute)
``DELETE machines/<ns>``                            give it back
``POST segments/distributor/<ns>/<name>``           see that a tag is there
``PATCH segments/<ns>/<name>``                      a range of ``step`` ids: its last one
==================================================  ==================================

A name is the alias of a generator (``__share__`` for the default one), else a tag of the mount's
namespace: ``ids/orders`` and ``segments/cosid/orders`` give ids of one tag, ``cosid.orders``.

Errors are ``{"code":"M-02","msg":"…","errors":[]}``. HTTP status 400 goes with M-01 (no machine id
is free), M-02 (the instance has none) and M-03 (it has lost its own). Other errors have an HTTP
status of their own, which is also the code.

**Machine ids** are worker ids of a generator of ``IDGEN["GENERATORS"]``, whose leases must be in
the database. A worker id has one holder: a CosId instance or a process of this project. Both may
make ids of one kind, if the generator has CosId's layout and epoch (by default 41/10/12 from
1577203200000). An instance belongs to the access tokens of the name that registered it. With a
token of another name the same instance id is another instance. Instances of an open mount have no
owner. CosId's own limits remain: nothing stops an instance that runs on without guarding for longer
than ``guard``, or that starts with an older state file; two instances with one instance id are one;
clocks may differ by ``clock_skew`` only.

A CosId client sends its instance id and its access token, but no lease. So each request looks up
the instance's lease and changes it by the lease's own token: of two requests at once, also in two
server processes, one comes first and voids what the other one knew. The process itself keeps
nothing that matters.

**Segments**: a client that gets n owns n - step + 1 to n of the tag ``<ns>.<name>``. A busy
client asks for longer ranges and accepts no shorter one: each is as long as it asks, up to
``max_skip``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.dateparse import parse_duration
from rest_framework.exceptions import APIException, NotFound, ParseError, PermissionDenied

from ...core.bounded import keep_newest
from ...core.clock import SYSTEM_CLOCK
from ...core.errors import (
    ConfigurationError,
    IdgenError,
    InvalidTag,
    LeaseLost,
    NoFreeWorker,
    RegistryUnavailable,
    SegmentExhausted,
)
from ...core.generator import Generator
from ...core.lease import Grant, Lease, Namespace
from ...core.registry import Registry
from ...core.segment import MAX_ID, Demand, Segment, check_tag
from ...ops.tags import edits as tag_edits
from ...ops.tags.change_log import record
from ...process.maps import RegistryMap, current_settings, generators, segments
from ...process.tags import Tag, find_tag
from ...rest.authentication import Caller
from ...rest.clients import MOST_LABEL, OPEN, Owner, check_quota
from ...rest.failures import Refusal
from ...rest.tags import UnknownTag
from ...settings.config import DEFAULT_ALIAS, GeneratorSettings, SettingsError
from ...signals import lease_acquired, log_event
from .mounting import (
    DEFAULT,
    Authentication,
    OldServer,
    Tags,
    checked_alias,
    json_answer,
    of_generator,
    parameter,
    throttle,
)

JSON = "application/json"
TEXT = "text/plain;charset=UTF-8"
SHARED = "__share__"
"""CosId's name for the default generator."""
NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
MOST_BITS = 62
ADD = "django_idgen.add_leafalloc"
ATTEMPTS = 4
MOST_REMEMBERED = 10_000
ACCEPTED = 0.5
"""Seconds: a CosId client refuses a time that is further ahead of its own clock."""
PATIENCE = 3.0
"""Seconds that a request waits at most until its client accepts the answer."""


def urls(
    *,
    authentication: Authentication = DEFAULT,
    generator: str = DEFAULT_ALIAS,
    namespace: str = "cosid",
    machines: Mapping[str, str] | None = None,
    tags: Iterable[str] = ("*",),
    make_tags: bool | None = None,
    guard: float = 300.0,
    clock_skew: float = 0.2,
    late: float = 120.0,
) -> list[URLPattern]:
    """The URL patterns, for ``include()``.

    ``authentication``: DRF's classes, one of which must know the caller; by default access tokens,
    then the project's own. None lets all callers take ids and machine ids, and a system check warns
    of it; otherwise a machine id takes a token that names the generator in ``leases``.
    ``generator``: the alias of ``ids`` without a name. ``namespace``: the namespace of ``ids`` with
    the name of a tag, ``cosid.namespace`` of the proxy server. ``machines``: the alias for each
    CosId namespace; no other namespace has machine ids. ``tags``: patterns of the tags to serve.
    ``make_tags``: whether a distributor makes its tag for callers who may not add tags
    (``django_idgen.add_leafalloc``); None: as ``IDGEN["REST"]["make_tags"]`` says.

    ``guard``: seconds for which a silent instance keeps its machine id; it may ask for no
    more. ``clock_skew``: seconds, 1 at most, by which clients' clocks may differ from the
    registry's. CosId's clients sleep for so long when they take up an id that was in use, and
    refuse more than 0.5; past 0.24 the service waits before it answers. ``late``: seconds that a
    DELETE may take to arrive. A machine id that was registered more recently expires instead of
    being free at once.

    Raises :class:`~django.core.exceptions.ImproperlyConfigured`.
    """
    rules = {
        "guard": _seconds("guard", guard),
        "skew": _seconds("clock_skew", clock_skew, most=1),
        "late": _seconds("late", late),
    }
    machines_of = {
        alias: MachineIds(checked_alias(alias), **rules) for alias in set((machines or {}).values())
    }
    server = CosId(
        authentication,
        checked_alias(generator),
        _checked_namespace(namespace),
        Tags(tags, make_tags),
        {name: machines_of[alias] for name, alias in (machines or {}).items()},
    )
    return [
        server.path("ids", get=server.shared),
        server.path("ids/as-string", get=server.shared_as_text),
        server.path("ids/as-string/<idgen_old_key:name>", get=server.named_as_text),
        server.path("ids/<idgen_old_key:name>", get=server.named),
        server.path(
            "machines/<idgen_old_key:namespace>",
            post=server.distribute,
            patch=server.guard,
            delete=server.revert,
        ),
        server.path("segments/distributor/<str:namespace>/<idgen_old_key:name>", post=server.open),
        server.path("segments/<str:namespace>/<idgen_old_key:name>", patch=server.take),
    ]


class CosId(OldServer):
    name = "cosid"
    slash = False
    epoch = "2019-12-24T16:00:00Z"

    def __init__(
        self,
        authentication: Authentication,
        alias: str,
        namespace: str,
        tags: Tags,
        machines_of: Mapping[str, MachineIds],
    ) -> None:
        super().__init__(authentication, [alias])
        self._alias = alias
        self._namespace = namespace
        self._tags = tags
        self._machines_of = machines_of
        self._distributor = Distributor(tags)

    # --- ids ---------------------------------------------------------------------------

    def shared(self, request: HttpRequest) -> HttpResponse:
        return self.named(request, SHARED)

    def shared_as_text(self, request: HttpRequest) -> HttpResponse:
        return self.named_as_text(request, SHARED)

    def named(self, request: HttpRequest, name: str) -> HttpResponse:
        return HttpResponse(b"%d" % self._generator(request, name).next_id(), content_type=JSON)

    def named_as_text(self, request: HttpRequest, name: str) -> HttpResponse:
        return HttpResponse(b"%d" % self._generator(request, name).next_id(), content_type=TEXT)

    def _generator(self, request: HttpRequest, name: str) -> Generator:
        caller = self.door.caller(request)
        if name == SHARED:
            return of_generator(caller, self._alias)
        if name in generators:
            return of_generator(caller, name)
        return self._tags.generator(caller, _tag_of(self._namespace, name))

    # --- machine ids -------------------------------------------------------------------

    def distribute(self, request: HttpRequest, namespace: str) -> HttpResponse:
        ids, owner = self._machine_ids(request, namespace, new=True)
        bits = _number(request, "machineBit", most=MOST_BITS)
        instance = _instance(request, namespace, owner)
        _check_guard(request, ids.longest_guard)
        if ids.workers.stop > 1 << bits:
            raise ParseError(
                f"machineBit is {bits}, which does not fit generator {ids.alias!r}: it lends "
                f"machine ids up to {ids.workers.stop - 1}. Set its 'workers' to "
                f"[0, {1 << bits}], or machineBit to "
                f"{(ids.workers.stop - 1).bit_length()}."
            )
        return _state(ids.distribute(instance))

    def guard(self, request: HttpRequest, namespace: str) -> HttpResponse:
        ids, owner = self._machine_ids(request, namespace)
        _check_guard(request, ids.longest_guard)
        return _state(ids.guard(_instance(request, namespace, owner)))

    def revert(self, request: HttpRequest, namespace: str) -> HttpResponse:
        ids, owner = self._machine_ids(request, namespace)
        return _state(ids.revert(_instance(request, namespace, owner)))

    def _machine_ids(
        self, request: HttpRequest, namespace: str, *, new: bool = False
    ) -> tuple[MachineIds, Owner]:
        # Throttles count only requests for a new machine id: an instance stops without its guard.
        caller = self.door.caller(request, counted=new)
        found = self._machines_of.get(namespace)
        if found is None:
            raise NotFound(
                f"Namespace {namespace!r} has no machine ids here: 'machines' of "
                f"cosid.urls() does not name it."
            )
        if caller is not None and not caller.may_borrow_of_generator(found.alias):
            raise PermissionDenied(
                "This needs an access token that names the generator in 'leases'."
            )
        if new:
            throttle(alias=found.alias)
        return found, Owner.of(caller.token if caller else None)

    # --- segments ----------------------------------------------------------------------

    def open(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        caller = self.door.caller(request)
        step = _number(request, "step", least=1, most=current_settings().rest.max_segment)
        offset = _number(request, "offset", most=MAX_ID - 1, default=0)
        last = self._distributor.open(caller, _tag_of(namespace, name), offset, step)
        return HttpResponse(str(last), content_type=JSON)

    def take(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        caller = self.door.caller(request)
        step = _number(request, "step", least=1, most=current_settings().rest.max_segment)
        last = self._distributor.take(caller, _tag_of(namespace, name), step)
        return HttpResponse(str(last), content_type=JSON)

    def failed(self, error: Exception, answer: APIException, request: HttpRequest) -> HttpResponse:  # noqa: ARG002
        known = next((code for kind, code in CODES if isinstance(error, kind)), None)
        content = {
            "code": known or str(answer.status_code),
            "msg": str(error) if known else str(answer.detail),
            "errors": [],
        }
        return json_answer(content, JSON, 400 if known else answer.status_code)


# --- parameters ------------------------------------------------------------------------


def _number(
    request: HttpRequest, name: str, *, least: int = 0, most: int, default: int | None = None
) -> int:
    text = parameter(request, name)
    if text is None and default is not None:
        return default
    if text is None or not NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ParseError(f"{name} must be a whole number of {least} to {most}.")
    return int(text)


def _instance(request: HttpRequest, namespace: str, owner: Owner) -> Instance:
    stable = (parameter(request, "stable") or "false").lower()
    if stable not in ("true", "false"):
        raise ParseError("stable must be true or false.")
    found = Instance(namespace, parameter(request, "instanceId") or "", stable == "true", owner)
    if not found.fits:
        raise ParseError(
            f"instanceId must be printable ASCII, of {MOST_LABEL} characters at most together with "
            f"the namespace and the access token's name."
        )
    return found


def _check_guard(request: HttpRequest, most: float) -> None:
    text = parameter(request, "safeGuardDuration")
    if text is None:
        return
    asked = _duration(text)
    if asked is None:
        raise ParseError("safeGuardDuration must be a duration such as PT5M.")
    if asked > timedelta(seconds=most):
        raise ParseError(
            f"safeGuardDuration is {text}, but a machine id is kept for {most:g} s here without "
            f"being guarded. Have the instance guard it, or raise 'guard' of cosid.urls()."
        )


def _duration(text: str) -> timedelta | None:
    try:
        found = parse_duration(text) if text.startswith("P") else None
    except OverflowError:  # the longest duration of Java
        return timedelta.max
    return found if found is not None and found > timedelta(0) else None


def _seconds(name: str, value: object, *, most: int = 86_400) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ImproperlyConfigured(
            f"{name} must be a number of seconds up to {most}, not {value!r}."
        )
    return float(value)


def _state(state: MachineState) -> HttpResponse:
    return json_answer({"machineId": state.machine_id, "lastTimeStamp": state.last_ms}, JSON)


# --- segments --------------------------------------------------------------------------


def _tag_of(namespace: str, name: str) -> str:
    """The tag of CosId's IdSegmentDistributor ``name``, which CosId names likewise."""
    return f"{namespace}.{name}"


def _checked_namespace(namespace: object) -> str:
    """``namespace``, if a tag can begin with it. Raises :class:`ImproperlyConfigured`."""
    try:
        return check_tag(namespace)
    except InvalidTag as error:
        raise ImproperlyConfigured(
            f"namespace must be a CosId namespace, such as 'cosid': {error}"
        ) from error


class Distributor:
    """CosId's IdSegmentDistributor, for all tags. Thread-safe."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags

    def open(self, caller: Caller | None, tag: str, offset: int, step: int) -> int:
        """Make ``tag`` above ``offset`` if it is missing. Returns the last id given out.

        Raises :class:`UnknownTag` if the caller may not make it.
        """
        self._tags.check(caller, tag, may_make=True)
        found = find_tag(tag)
        if found is None:
            most, may_add = current_settings().rest.max_skip, caller and caller.has_perm(ADD)
            if not self._tags.makes() and not may_add:
                raise UnknownTag(tag)
            if offset > most and not may_add:
                raise PermissionDenied(
                    f"An offset of {offset} would skip that many ids of the new tag {tag!r}, but "
                    f"a request may skip at most {most} (max_skip). A user who may add tags can "
                    "make the tag."
                )
            found = _made(tag, offset, step)
            user = caller.user if caller else "anybody"
            record(user, tag, "added", step=(None, step), max_id=(None, offset + 1))
        return found.max_id - 1

    def take(self, caller: Caller | None, tag: str, step: int) -> int:
        """Take a range of ``step`` ids. Returns its last id.

        Not from a pool: a CosId client wants each range to be above the one before.
        """
        self._tags.check_segments(caller, tag)
        allocator = segments.allocator()
        allocator.check_process()
        segment = allocator.source.behind.fetch(tag, demand=Demand(times=0, at_least=step))
        refusal = _refusal(segment, step)
        if refusal:
            allocator.give_back(tag, [segment.ids()])
            raise refusal
        return int(segment.ids()[-1])


def _refusal(segment: Segment, step: int) -> IdgenError | None:
    """The error for a segment that is not ``step`` ids without a gap, as clients take it to be."""
    if segment.delta != 1:
        return ConfigurationError(
            f"Tag {segment.tag!r} comes from {segment.delta} databases, each of which gives out "
            f"every {segment.delta}th id: CosId's clients need ranges without gaps."
        )
    left = len(segment.ids())
    if left < step:
        return SegmentExhausted(
            f"Tag {segment.tag!r} gave {left} ids, fewer than {step}: it is near its end, or comes "
            f"from a service that lends no more at a time (max_segment)."
        )
    return None


def _made(tag: str, offset: int, step: int) -> Tag:
    try:
        return tag_edits.make_tag(check_tag(tag), step=step, max_id=offset + 1)
    except tag_edits.TagExists:
        found = find_tag(tag)
    if found is None:
        raise NotFound(f"Tag {tag!r} could not be made.")
    return found


# --- machine ids -----------------------------------------------------------------------


class MachineNotFound(IdgenError):
    """The instance has no machine id."""


class MachineLost(IdgenError):
    """The instance had a machine id, which may have another holder now."""


CODES = ((NoFreeWorker, "M-01"), (MachineNotFound, "M-02"), (MachineLost, "M-03"))


@dataclass(frozen=True, slots=True)
class Instance:
    """A CosId instance. ``name``: its instance id, which each owner may use for another one."""

    namespace: str
    name: str
    stable: bool
    owner: Owner = OPEN

    @property
    def label(self) -> str:
        """The holder's name in the registry. No process of this project has such a name."""
        return self.owner.instance_label(self.namespace, self.name)

    @property
    def fits(self) -> bool:
        printable = (
            self.name.isascii() and self.name.isprintable() and self.name == self.name.strip()
        )
        return bool(self.name) and printable and len(self.label) <= MOST_LABEL


@dataclass(frozen=True, slots=True)
class MachineState:
    """The answer to a client."""

    machine_id: int
    last_ms: int
    """Milliseconds since 1970: every stamp of an earlier holder is before it."""


class MachineIds:
    """Lends the worker ids of generator ``alias``. Thread-safe.

    ``guard``: seconds for which a silent instance keeps its machine id. ``skew``: seconds by which
    a client's clock may differ from the registry's. ``late``: seconds that a DELETE may take to
    arrive. Raises :class:`NoFreeWorker`, :class:`RegistryUnavailable` and other errors of
    registries.
    """

    def __init__(self, alias: str, *, guard: float, skew: float, late: float) -> None:
        self.alias = alias
        self.longest_guard = guard
        self._skew = skew
        self._late = late
        self._registries = _Registries(guard + skew)
        self._known: dict[str, None] = {}

    @property
    def workers(self) -> range:
        """The machine ids that may be lent."""
        return self._space.workers

    def distribute(self, instance: Instance) -> MachineState:
        """The machine id of ``instance``: the one it has, else another that is free.

        Waits until CosId's clients accept its time. Refuses if that takes longer than
        :data:`PATIENCE`.
        """
        avoid, ahead = None, 0.0
        for _ in range(ATTEMPTS):
            try:
                kept = self._again(instance)
                grant, is_new = (kept, False) if kept else self._anew(instance, avoid)
            except LeaseLost:
                continue  # another request of the instance was faster
            state = self._state(grant, is_new=is_new)
            ahead = self._ahead(state, grant)
            if ahead <= PATIENCE:
                SYSTEM_CLOCK.sleep(max(0.0, ahead))
                self._remember(instance)
                return state
            if is_new:
                self._registry.release(grant.lease, last_tick=None)
            avoid = grant.lease.worker
        if ahead:
            raise Refusal(
                503,
                "unavailable",
                f"The worker ids of generator {self.alias!r} are lent up to {ahead:.1f} s past "
                f"now: the database was changed or has lost rows, or a clock was ahead. CosId's "
                f"clients refuse more than {ACCEPTED:g} s. Start the instance again in "
                f"{ahead:.0f} s.",
                wait=ahead,
            )
        raise RegistryUnavailable(
            f"Several requests of instance {instance.name!r} ran at once. Try again."
        )

    def guard(self, instance: Instance) -> MachineState:
        """Renew the machine id of ``instance``.

        Raises :class:`MachineNotFound` and :class:`MachineLost`.
        """
        kept = [grant for lease in self._held(instance) if (grant := self._renewed(lease))]
        if not kept:
            kind = MachineLost if instance.label in self._known else MachineNotFound
            raise kind(f"Instance {instance.name!r} has no machine id. Ask for one.")
        self._remember(instance)
        return self._state(kept[0], is_new=False)

    def revert(self, instance: Instance) -> MachineState:
        """Take back the machine id of ``instance``. Raises :class:`MachineNotFound`.

        A DELETE that arrives late, after the instance was started again, looks like a new one. So
        a machine id that was registered within ``late`` seconds expires on its own instead, and so
        does a stable instance's: the living instance still guards it. The next lease begins
        where the guard would have ended, since a client may stamp until its DELETE arrives.
        """
        found = None
        for lease in self._held(instance):
            grant = self._renewed(lease)
            if grant is None:
                continue
            found = found or grant
            if not instance.stable and self._is_settled(grant):
                self._registry.release(grant.lease, last_tick=self._space.max_ticks)
        if found is None:
            raise MachineNotFound(f"Instance {instance.name!r} has no machine id.")
        return self._state(found, is_new=False)

    def _again(self, instance: Instance) -> Grant | None:
        """The lease that ``instance`` has, renewed; None if there is none to go on with.

        A stable instance's lease is renewed. Another's is released, so that :meth:`_anew` takes the
        same worker id with a start that tells when the instance was last registered.
        """
        held = self._held(instance)
        if not held:
            return None
        grant: Grant = self._registry.renew(held[0], last_tick=held[0].start)
        if not instance.stable:
            self._registry.release(grant.lease, last_tick=self._latest(grant))
            return None
        return grant

    def _anew(self, instance: Instance, avoid: int | None) -> tuple[Grant, bool]:
        """A lease, and whether it is new."""
        check_quota(self._registry, self.alias, instance.owner)
        grant: Grant = self._registry.acquire(holder=instance.label, avoid=avoid)
        first = self._held(instance)[:1]
        if not first or first[0].token == grant.lease.token:
            log_event(lease_acquired, lease=grant.lease, holder=instance.label)
            return grant, True
        # Of two requests of one instance at once, both get the first one's lease.
        self._registry.release(grant.lease, last_tick=None)
        return self._registry.renew(first[0], last_tick=first[0].start), False

    def _held(self, instance: Instance) -> list[Lease]:
        found: list[Lease] = self._registry.held_by(instance.label)
        return found

    def _renewed(self, lease: Lease) -> Grant | None:
        try:
            grant: Grant = self._registry.renew(lease, last_tick=lease.start)
        except LeaseLost:
            return None
        return grant

    def _state(self, grant: Grant, *, is_new: bool) -> MachineState:
        """Stamps begin where a new lease does, or after those of the past life."""
        space = self._space
        tick = grant.lease.start
        if not is_new:
            tick = max(tick, self._latest(grant) + 1)
        unix_us = space.epoch_us + tick * space.tick_us
        return MachineState(grant.lease.worker, -(-unix_us // 1000))

    def _ahead(self, state: MachineState, grant: Grant) -> float:
        """Seconds until the slowest clock accepts ``state``; negative if it already does."""
        ahead_us = state.last_ms * 1000 - grant.reading.registry_us
        return ahead_us / 1e6 + self._skew - ACCEPTED

    def _latest(self, grant: Grant) -> int:
        """The latest tick that a client can have stamped by now."""
        return self._space.tick_at(grant.reading.registry_us + int(self._skew * 1e6))

    def _is_settled(self, grant: Grant) -> bool:
        since = self._space.tick_at(grant.reading.registry_us - int(self._late * 1e6))
        return grant.lease.start <= since

    def _remember(self, instance: Instance) -> None:
        # Only tells MachineLost from MachineNotFound.
        keep_newest(self._known, instance.label, None, most=MOST_REMEMBERED)

    @property
    def _space(self) -> Namespace:
        space: Namespace = self._registry.namespace
        return space

    @property
    def _registry(self) -> Any:
        return self._registries[self.alias]


class _Registries(RegistryMap):
    """Registries whose window is the guard by a clock that is ahead."""

    def __init__(self, window: float) -> None:
        super().__init__()
        self._window = window

    def open(self, entry: GeneratorSettings) -> Registry:
        # One tick more, since a window does not include its end.
        window = self._window + entry.layout.tick_us / 1e6
        registry = super().open(replace(entry, window=window))
        if not registry.knows_holders:
            raise SettingsError(
                f"CosId's machine ids can't come from generator {entry.alias!r}: its leases are "
                f"those of {entry.leases.path}, which can't tell what an instance holds. Name "
                f"a generator with django_idgen.leases.database.DatabaseLeases."
            )
        return registry
