"""Worker ids over HTTP: borrowed, kept and given back, out of the generator's own registry.

=======================================  ====================  =====================
``generators/<alias>/leases``            GET                   what is lent, and how
``generators/<alias>/leases``            POST                  borrow
``generators/<alias>/leases/renew``      POST                  move the end up
``generators/<alias>/leases/release``    POST                  give back
``generators/<alias>/leases/renew-seen`` POST                  for a scheduler
=======================================  ====================  =====================

A lease's token is in bodies alone: URLs are logged. Each acquire is another lease, also
one that a proxy sent twice; the one whose answer is lost lapses.
"""

from __future__ import annotations

import json
from typing import Any

from rest_framework.exceptions import NotFound, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import LeaseLost, NamespaceMismatch, TooFarAhead
from ..core.lease import Lease, LeaseRegistry, Namespace
from ..core.lending import fingerprint_text, lost
from ..process.handlers import current_settings
from ..settings.config import GeneratorSettings
from .holders import Owner
from .lending_base import LendingRefused, LendingView
from .lending_input import (
    AcquireInput,
    ReleaseInput,
    RenewInput,
    RenewSeenInput,
    lease_of,
    lease_words,
)
from .lending_quota import check_quota
from .lending_registries import REGISTRIES, installation_of_registry
from .throttles import CallerThrottle

__all__ = ["LeasesView", "ReleaseView", "RenewSeenView", "RenewView"]

MOST_AHEAD_US = 3_600_000_000
"""How far past now a client's word moves a window: an hour, as after the service's clock was
put back. One that says more, by mistake or again and again, would use time up for all others. A
holder that is further ahead goes on under another worker id, or starts anew."""


class LeaseView(LendingView):
    """Of one generator, for programs whose token names it in ``leases``."""

    throttle_classes = ()
    """None for who renews: refused, it would have to stop, though it keeps to every limit."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        alias = kwargs["alias"]
        if not self.caller.may_borrow_of_generator(alias):
            raise PermissionDenied
        if alias not in current_settings().generators:
            raise NotFound(f"There is no generator {alias!r}.")
        self.alias: str = alias

    @property
    def registry(self) -> LeaseRegistry:
        return REGISTRIES[self.alias]

    def check_settled(self, asked: dict[str, Any]) -> None:
        """Refuse a client whose settings are not the registry's."""
        space = self.registry.namespace
        check_fingerprint(space, asked["fingerprint"])
        for name, ours in (("window", space.window_ticks), ("ahead", space.ahead_ticks)):
            if asked[name] > ours:
                raise LendingRefused(
                    "settings_differ",
                    f"{_SETTINGS[name]} of the client is {asked[name]} ticks of {space.tick_us} "
                    f"µs, and that of generator {self.alias!r} of the service {ours}. The "
                    f"client's can't be more: lower it there, or raise it in the service.",
                    setting=name,
                    stored=ours,
                    configured=asked[name],
                )

    def installation(self, asked: dict[str, Any]) -> str:
        """Whose worker ids these are, as the client expects it."""
        ours = installation_of_registry(self.registry)
        self.check_installation(asked, ours)
        return ours


class LeasesView(LeaseView):
    """What is lent, and borrowing it."""

    def get_throttles(self) -> list[BaseThrottle]:
        # Ours not for asking what is lent.
        known: list[Any] = [*api_settings.DEFAULT_THROTTLE_CLASSES]
        own = [CallerThrottle] if self.request.method == "POST" else []
        return [kind() for kind in (*known, *own)]

    def get(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """All that a client needs to make the very same ids."""
        return Response(describe(current_settings().generators[alias], self.registry))

    def post(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        asked = self.read(AcquireInput)
        self.check_settled(asked)
        installation = self.installation(asked)
        self.check_not_before(asked["not_before"])
        owner = Owner.of(self.caller.token)
        check_quota(self.registry, self.alias, owner)
        grant = self.registry.acquire(
            # The worker id that a holder had comes back to tokens of that name alone.
            holder=owner.label(asked["holder"]),
            not_before=asked["not_before"],
            avoid=asked["avoid"],
        )
        return self.answer(
            asked,
            lease=lease_words(grant.lease),
            now_us=str(grant.reading.registry_us),
            installation=installation,
        )

    def check_not_before(self, tick: int) -> None:
        """Refuse a client that asks for later and later windows, each from the last one's end.

        After any loss a fence lies at most two windows past where holders can have come.
        """
        space = self.registry.namespace
        latest = space.tick_at(SYSTEM_CLOCK.wall_ns() // 1000 + MOST_AHEAD_US)
        latest += 3 * space.lead_ticks
        if tick > latest:
            raise LendingRefused(
                "too_far_ahead",
                f"not_before is tick {tick}, and may be {latest} at most: an hour past now. See "
                f"whether the clocks of the service and its database are right. A client that is "
                f"started anew begins at the service's time.",
                asked=str(tick),
                latest=str(latest),
            )

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, TooFarAhead):
            # The client's own matter, as with a lost lease.
            exc = LendingRefused(
                "too_far_ahead", str(exc), asked=str(exc.tick), latest=str(exc.latest)
            )
        return super().handle_exception(exc)


class RenewView(LeaseView):
    """Moving the end of a window up."""

    def post(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        asked = self.read(RenewInput)
        self.check_settled(asked)
        installation = self.installation(asked)
        space = self.registry.namespace
        lease = lease_of(asked["lease"], space)
        if not is_possible(lease, space):
            raise lost(lease)
        latest = space.tick_at(SYSTEM_CLOCK.wall_ns() // 1000 + MOST_AHEAD_US)
        grant = self.registry.renew(lease, last_tick=min(asked["last_tick"], latest))
        return self.answer(
            asked,
            lease=lease_words(grant.lease),
            now_us=str(grant.reading.registry_us),
            installation=installation,
        )

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, LeaseLost):
            # The client's own matter: it may be asked a thousand times, and is not our fault.
            exc = LendingRefused("lease_lost", "This lease is not known any more. Take a new one.")
        return super().handle_exception(exc)


class ReleaseView(LeaseView):
    """Giving a worker id back."""

    def post(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        asked = self.read(ReleaseInput)
        installation = self.installation(asked)
        space = self.registry.namespace
        lease = lease_of(asked["lease"], space)
        # The end stays where it is stored: which tick a client came to is its word alone.
        known = is_possible(lease, space) and self.registry.release(
            lease, last_tick=space.max_ticks
        )
        return self.answer(asked, known=known, installation=installation)


class RenewSeenView(LeaseView):
    """For a scheduler on the client's side; the service's own does the same."""

    def post(self, request: Request, alias: str, **_kwargs: str) -> Response:  # noqa: ARG002
        asked = self.read(RenewSeenInput)
        self.check_settled(asked)
        installation = self.installation(asked)
        # No longer than the service's own scheduler would: who is gone lapses in the end.
        most = current_settings().generators[self.alias].idle_after
        renewed = self.registry.renew_seen(idle_after=min(asked["idle_after"], most))
        return self.answer(asked, renewed=renewed, installation=installation)


def check_fingerprint(space: Namespace, theirs: dict[str, Any]) -> None:
    """Raise :class:`NamespaceMismatch` naming the first setting in which a client differs.

    But for the kind of its registry: it has none of its own, and is lent by ours.
    """
    ours = _comparable(space)
    given = {key: value for key, value in theirs.items() if key != "registry"}
    if "workers" in given:  # which a registry that is told its own keeps to itself
        ours.setdefault("workers", [space.workers.start, space.workers.stop])
    for key in sorted(ours.keys() | given.keys()):
        if ours.get(key) != given.get(key):
            raise NamespaceMismatch(space.name, key, ours.get(key), given.get(key))


def describe(entry: GeneratorSettings, registry: LeaseRegistry) -> dict[str, Any]:
    """A generator, as its borrowers have to be set up."""
    space = registry.namespace
    layout = entry.layout
    return {
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
        "fingerprint": _comparable(space),
        "installation": installation_of_registry(registry),
    }


def is_possible(lease: Lease, space: Namespace) -> bool:
    """Whether it can ever have been lent: a database may have no column for what can't."""
    return lease.worker in space.workers and lease.start <= lease.until <= space.max_ticks


def _comparable(space: Namespace) -> dict[str, Any]:
    ours: dict[str, Any] = json.loads(fingerprint_text(space))
    ours.pop("registry", None)
    return ours


_SETTINGS = {"window": "'window'", "ahead": "'max_ahead'"}
