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

**Segments**: a client that gets n owns n - step + 1 to n of the tag ``<ns>.<name>``. A busy
client asks for longer ranges and accepts no shorter one: each is as long as it asks, up to
``max_segment``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.dateparse import parse_duration
from rest_framework.exceptions import APIException, NotFound, ParseError, PermissionDenied

from ...core.errors import (
    ConfigurationError,
    IdgenError,
    InvalidTag,
    NoFreeWorker,
    SegmentExhausted,
)
from ...core.segment import MAX_ID, Demand, Segment, check_tag
from ...ops.tags import edits as tag_edits
from ...ops.tags.change_log import record
from ...process.maps import current_settings, generators, segments
from ...process.tags import find_tag, known_tag
from ...rest.authentication import Caller
from ...rest.clients import MOST_LABEL, Owner
from ...rest.tags import ADD, UnknownTag
from ...settings.config import DEFAULT_ALIAS
from .machines import Instance, MachineIds, MachineLost, MachineNotFound, MachineState
from .mounting import (
    DEFAULT,
    KEY,
    Authentication,
    OldServer,
    checked_alias,
    json_answer,
    parameter,
    throttle,
)

JSON = "application/json"
TEXT = "text/plain;charset=UTF-8"
SHARED = "__share__"
"""CosId's name for the default generator."""
NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
MOST_BITS = 62
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
    named = machines or {}
    made = {alias: MachineIds(checked_alias(alias), **rules) for alias in {*named.values()}}
    server = CosId(authentication, generator, tags=tags, make_tags=make_tags)
    server.namespace = _checked_namespace(namespace)
    server.machines = {name: made[alias] for name, alias in named.items()}
    name, ns = f"(?P<name>{KEY})", "(?P<namespace>[^/]+)"
    return [
        server.path("ids", get=server.number),
        server.path("ids/as-string", get=server.text),
        server.path(f"ids/as-string/{name}", get=server.text),
        server.path(f"ids/{name}", get=server.number),
        server.path(
            f"machines/(?P<namespace>{KEY})",
            post=server.distribute,
            patch=server.guard,
            delete=server.revert,
        ),
        server.path(f"segments/distributor/{ns}/{name}", post=server.open),
        server.path(f"segments/{ns}/{name}", patch=server.take),
    ]


class CosId(OldServer):
    name = "cosid"
    slash = False
    epoch = "2019-12-24T16:00:00Z"
    if_open = (
        " Its machine ids have no owner: anybody can give back the machine id of an instance, and "
        "then take it."
    )
    namespace: str
    machines: Mapping[str, MachineIds]
    """By the CosId namespace of the instances."""

    # --- ids ---------------------------------------------------------------------------

    def number(self, request: HttpRequest, name: str = SHARED) -> HttpResponse:
        return HttpResponse(b"%d" % self._id(request, name), content_type=JSON)

    def text(self, request: HttpRequest, name: str = SHARED) -> HttpResponse:
        return HttpResponse(b"%d" % self._id(request, name), content_type=TEXT)

    def _id(self, request: HttpRequest, name: str) -> int:
        caller = self.door.caller(request)
        if name == SHARED or name in generators:
            alias = self.alias if name == SHARED else name
            return self.of_generator(caller, alias).next_id()
        return self.of_tag(caller, _tag_of(self.namespace, name)).next_id()

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
        found = self.machines.get(namespace)
        if caller is not None and not (
            caller.may_borrow_of_generator(found.alias) if found else caller.borrows
        ):
            raise PermissionDenied(
                "This needs an access token that names the generator in 'leases'."
            )
        if found is None:
            raise NotFound(
                f"Namespace {namespace!r} has no machine ids here: 'machines' of "
                f"cosid.urls() does not name it."
            )
        if new:
            throttle(alias=found.alias)
        return found, Owner.of(caller.token if caller else None)

    # --- segments ----------------------------------------------------------------------

    def open(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        """See that a tag is there, above ``offset``. The last id given out."""
        caller, tag = self.door.caller(request), _tag_of(namespace, name)
        step = _step(request)
        offset = _number(request, "offset", most=MAX_ID - 1, default=0)
        self.tags.check(caller, tag, may_make=True)
        found = find_tag(tag)
        if found is None:
            self._check_new(caller, tag, offset)
            try:
                found = tag_edits.make_tag(tag, step=step, max_id=offset + 1)
                user = caller.user if caller else "anybody"
                record(user, tag, "added", step=(None, step), max_id=(None, offset + 1))
            except tag_edits.TagExists:  # another request was faster
                found = known_tag(tag)
        return HttpResponse(str(found.max_id - 1), content_type=JSON)

    def _check_new(self, caller: Caller | None, tag: str, offset: int) -> None:
        """Raise unless ``caller`` may make ``tag``, with the ids up to ``offset`` skipped."""
        most = current_settings().rest.max_skip
        if caller and caller.has_perm(ADD):
            return
        if not self.tags.makes():
            raise UnknownTag(tag)
        if offset > most:
            raise PermissionDenied(
                f"An offset of {offset} would skip that many ids of the new tag {tag!r}, but "
                f"a request may skip at most {most} (max_skip). A user who may add tags can "
                "make the tag."
            )

    def take(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        """Take a range of ``step`` ids: its last id.

        Not from a pool: a CosId client wants each range to be above the one before.
        """
        caller, tag = self.door.caller(request), _tag_of(namespace, name)
        step = _step(request)
        self.tags.check_segments(caller, tag)
        allocator = segments.allocator()
        allocator.check_process()
        segment = allocator.source.behind.fetch(tag, demand=Demand(times=0, at_least=step))
        refusal = _refusal(segment, step)
        if refusal:
            allocator.give_back(tag, [segment.ids()])
            raise refusal
        return HttpResponse(str(segment.ids()[-1]), content_type=JSON)

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


def _step(request: HttpRequest) -> int:
    return _number(request, "step", least=1, most=current_settings().rest.max_segment)


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
