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

A name is the alias of a generator (``__share__`` the default one), else that of a tag of the
mount's own namespace: ``ids/orders`` and ``segments/cosid/orders`` are of one tag,
``cosid.orders``. Errors
are ``{"code":"M-02","msg":"…","errors":[]}``, with HTTP status 400 and M-01 if no machine id
is free, M-02 if the instance has none, M-03 if it has lost it; else with a status that
says so, and that as the code.

**Machine ids** are worker ids of a generator of ``IDGEN["GENERATORS"]``, whose leases have
to be in the database. One worker id has one holder, be it a CosId instance or a process of
this project; so both may make ids of one kind, if the generator has CosId's layout and epoch
(by default 41/10/12 from 1577203200000). An instance belongs to the access tokens of the name
that made it: with another one its instance id is another instance, until ``idgen_token
hand-over``. Instances of an open mount have no owner. What CosId leaves open stays so:
nothing stops an instance that goes on without guarding for longer than ``guard``, or one that
starts with a state file older than that; two instances with one instance id are one; and
clocks may differ by ``clock_skew`` only.

**Segments**: a client that gets n owns n - step + 1 to n of the tag ``<ns>.<name>``. A busy
client asks for longer ranges, and takes no shorter one for an answer: each is as long as it
asks, up to ``max_skip``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.dateparse import parse_duration
from rest_framework.exceptions import NotFound, ParseError, PermissionDenied

from ...core.errors import (
    ConfigurationError,
    IdgenError,
    InvalidTag,
    NoFreeWorker,
    SegmentExhausted,
)
from ...core.generator import Generator
from ...core.segment import MAX_ID, Demand, Segment, check_tag
from ...ops.tags import edits as tag_edits
from ...ops.tags.change_log import record
from ...process.handlers import current_settings, generators, segments
from ...process.tags import Tag, find_tag
from ...rest.access import Caller
from ...rest.clients import MOST_LABEL, Owner
from ...rest.failures import Failure
from ...rest.tags import UnknownTag
from ...settings.config import DEFAULT_ALIAS
from .cosid_machines import Instance, MachineIds, MachineLost, MachineNotFound, MachineState, Rules
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

__all__ = ["Distributor", "urls"]

JSON = "application/json"
TEXT = "text/plain;charset=UTF-8"
SHARED = "__share__"
"""CosId's name for the default generator."""
NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
MOST_BITS = 62
ADD = "django_idgen.add_leafalloc"
CODES = ((NoFreeWorker, "M-01"), (MachineNotFound, "M-02"), (MachineLost, "M-03"))


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

    ``authentication``: DRF's classes, one of which has to know the caller; by default
    access tokens, then the project's own. None lets all callers take ids and machine ids, of
    which a system check warns; else a machine id takes a token that names the generator in
    ``leases``. ``generator``: the alias of ``ids`` without a name. ``namespace``: that of
    ``ids`` with the name of a tag, ``cosid.namespace`` of the proxy server. ``machines``: the alias
    for each CosId namespace; no other namespace has machine ids. ``tags``: patterns of the
    tags that are served. ``make_tags``: whether a distributor makes its tag for callers
    who may not add tags (``django_idgen.add_leafalloc``); None: as
    ``IDGEN["REST"]["make_tags"]`` says.

    ``guard``: seconds for which a silent instance keeps its machine id; it may ask for no
    more. ``clock_skew``: seconds, 1 at most, by which clients' clocks may differ from the
    registry's. CosId's clients sleep for so long when they take up an id that was in use, and
    refuse more than 0.5; past 0.24 the service waits before it answers. ``late``: seconds for
    which a DELETE may be held up on its way; a machine id that was registered more lately
    expires, instead of being free at once.

    Raises :class:`~django.core.exceptions.ImproperlyConfigured`.
    """
    rules = Rules(
        _seconds("guard", guard),
        _seconds("clock_skew", clock_skew, most=1),
        _seconds("late", late),
    )
    machines_of = {
        alias: MachineIds(checked_alias(alias), rules) for alias in set((machines or {}).values())
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

    def __init__(
        self,
        authentication: Authentication,
        alias: str,
        namespace: str,
        tags: Tags,
        machines_of: Mapping[str, MachineIds],
    ) -> None:
        super().__init__(authentication)
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
        return HttpResponse(str(self._generator(request, name).next_id()), content_type=JSON)

    def named_as_text(self, request: HttpRequest, name: str) -> HttpResponse:
        return HttpResponse(str(self._generator(request, name).next_id()), content_type=TEXT)

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
        _check_guard(request, ids.rules.guard)
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
        _check_guard(request, ids.rules.guard)
        return _state(ids.guard(_instance(request, namespace, owner)))

    def revert(self, request: HttpRequest, namespace: str) -> HttpResponse:
        ids, owner = self._machine_ids(request, namespace)
        return _state(ids.revert(_instance(request, namespace, owner)))

    def _machine_ids(
        self, request: HttpRequest, namespace: str, *, new: bool = False
    ) -> tuple[MachineIds, Owner]:
        # Only requests for a machine id are throttled: without its guard an instance stops.
        caller = self.door.caller(request, counted=new)
        found = self._machines_of.get(namespace)
        if found is None:
            raise NotFound(
                f"Namespace {namespace!r} has no machine ids here: 'machines' of "
                f"cosid.urls() does not name it."
            )
        if caller is not None and not caller.may_borrow_of_generator(found.alias):
            raise PermissionDenied("It takes an access token that names the generator in 'leases'.")
        if new:
            throttle(alias=found.alias)
        return found, Owner.of(caller.token if caller else None)

    # --- segments ----------------------------------------------------------------------

    def open(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        caller = self.door.caller(request)
        step = _number(request, "step", least=1, most=current_settings().rest.max_skip)
        offset = _number(request, "offset", most=MAX_ID - 1, default=0)
        last = self._distributor.open(caller, _tag_of(namespace, name), offset, step)
        return HttpResponse(str(last), content_type=JSON)

    def take(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        caller = self.door.caller(request)
        step = _number(request, "step", least=1, most=current_settings().rest.max_skip)
        last = self._distributor.take(caller, _tag_of(namespace, name), step)
        return HttpResponse(str(last), content_type=JSON)

    def failed(self, error: Exception, failure: Failure, request: HttpRequest) -> HttpResponse:  # noqa: ARG002
        known = next((code for kind, code in CODES if isinstance(error, kind)), None)
        content = {
            "code": known or str(failure.status),
            "msg": str(error) if known else failure.detail,
            "errors": [],
        }
        return json_answer(content, JSON, 400 if known else failure.status)


# --- what a request says ---------------------------------------------------------------


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
    except OverflowError:  # as long as Java can say: for ever
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


# --- segments ----------------------------------------------------------------------------


def _tag_of(namespace: str, name: str) -> str:
    """The tag of CosId's IdSegmentDistributor ``name``; CosId joins the two likewise."""
    return f"{namespace}.{name}"


def _checked_namespace(namespace: object) -> str:
    """``namespace``, if a tag can begin with it; raises :class:`ImproperlyConfigured`."""
    try:
        return check_tag(namespace)
    except InvalidTag as error:
        raise ImproperlyConfigured(
            f"namespace must be a CosId namespace, such as 'cosid': {error}"
        ) from error


class Distributor:
    """What CosId calls an IdSegmentDistributor: one for each tag. Thread-safe."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags

    def open(self, caller: Caller | None, tag: str, offset: int, step: int) -> int:
        """See that ``tag`` is there; a new one begins above ``offset``. The last id given out.

        Raises :class:`UnknownTag` where the caller may not make it.
        """
        self._tags.check(caller, tag, may_make=True)
        found = find_tag(tag)
        if found is None:
            most, may_add = current_settings().rest.max_skip, caller and caller.has_perm(ADD)
            if not self._tags.makes() and not may_add:
                raise UnknownTag(tag)
            if offset > most and not may_add:
                raise PermissionDenied(
                    f"An offset of {offset} would skip that many ids of the new tag {tag!r}, and a "
                    f"request may skip {most} (max_skip). A user who may add tags can make it."
                )
            found = _made(tag, offset, step)
            user = caller.user if caller else "anybody"
            record(user, tag, "added", step=(None, step), max_id=(None, offset + 1))
        return found.max_id - 1

    def take(self, caller: Caller | None, tag: str, step: int) -> int:
        """The last id of a range of ``step`` ids, which is the caller's alone.

        Not out of a pool: a CosId client wants each range to be above the one before.
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
    """Why a client that takes any range for ``step`` ids without a gap can't have this one."""
    if segment.delta != 1:
        return ConfigurationError(
            f"Tag {segment.tag!r} comes from {segment.delta} databases, each of which gives out "
            f"every {segment.delta}th id: CosId's clients know ranges without gaps alone."
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
