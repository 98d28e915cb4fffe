"""Worker ids lent by a service over HTTP, so that this process needs no database.

The service lends from the registry that its own processes use, so that all of them are one
fleet: one namespace, one record. At each acquire and renewal it compares layout, epoch and
worker ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, Unpack

from ..core.book import first_difference, lost, without_registry
from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import (
    ClockBeforeEpoch,
    ConfigurationError,
    IdgenError,
    NamespaceMismatch,
    NoFreeWorker,
    NotSeenFromHere,
    RegistryUnavailable,
    TimeExhausted,
    sentence,
)
from ..core.lease import Grant, Lease, Namespace, too_far_ahead
from ..core.registry import Registry
from ..remote.link import (
    Answer,
    HttpLink,
    LinkOptions,
    Refused,
    leases_path,
    number_of,
    shows_link_options,
    way_out,
    word_of,
)

MOST_HOLDER = 200

T = TypeVar("T")


@shows_link_options
class HttpLeases(Registry):
    """A registry behind the services at ``base_urls``. Thread-safe.

    ``generator``: the alias of ``IDGEN["GENERATORS"]`` of the service that lends the worker ids;
    the namespace's name by default. Its layout, epoch and ``workers`` must equal those of this
    process; its ``window`` and ``max_ahead`` must be at least as long. For the other options see
    :class:`HttpLink`.

    Raises :class:`ConfigurationError` for options that can't work.
    """

    kind = "http"

    def __init__(
        self,
        namespace: Namespace,
        *,
        base_urls: str | Sequence[str],
        generator: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **link: Unpack[LinkOptions],
    ) -> None:
        self.namespace = namespace
        self._path = leases_path(namespace.name if generator is None else generator)
        self._link = HttpLink(base_urls, clock=clock, **link)
        self._what = f"worker ids of namespace {namespace.name!r}"

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`Registry.acquire`.

        Raises :class:`ConfigurationError` for a service of another database.
        """
        body = {"holder": _label(holder), "not_before": str(not_before), "avoid": avoid}
        answer = self._ask("", {**body, **self._settings()}, self._refusal)
        return self._read(answer, partial(self._granted, not_before, avoid))

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        body = {"lease": _words(lease), "last_tick": str(last_tick), **self._settings()}
        answer = self._ask("/renew", body, partial(self._refusal_of, lease))
        return self._read(answer, partial(self._renewed, lease))

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:  # noqa: ARG002
        """See :meth:`Registry.release`.

        The service ignores ``last_tick``: the next holder begins at the end of the window.
        """
        if not lease.token:
            return False
        answer = self._ask("/release", {"lease": _words(lease)}, self._refusal)
        return answer.body.get("known") is True

    def renew_seen(self, *, idle_after: float) -> int:
        body = {"idle_after": idle_after, **self._settings()}
        return self._read(
            self._ask("/renew-seen", body, self._refusal),
            lambda answer: number_of(answer.body, "renewed"),
        )

    def installation(self) -> str:
        if self._link.installation_of(self._what) is None:
            self._terms()
        return str(self._link.installation_of(self._what))

    def check_access(self) -> None:
        """See :meth:`Registry.check_access`.

        Raises :class:`NamespaceMismatch` or :class:`ConfigurationError` for settings that the
        service refuses.
        """
        self._check_terms(self._terms())

    def _terms(self) -> Mapping[str, Any]:
        return self._ask("", None, self._refusal).body

    def _check_terms(self, terms: Mapping[str, Any]) -> None:
        space, theirs = self.namespace, dict(_object(terms, "fingerprint"))
        theirs.setdefault("workers", terms.get("workers"))
        difference = first_difference(theirs, without_registry(space.fingerprint))
        if difference is not None:
            raise NamespaceMismatch(space.name, *difference, by_service=True)
        for setting, ours, most in (
            ("window", space.window_ticks, number_of(terms, "window_ticks")),
            ("max_ahead", space.ahead_ticks, number_of(terms, "ahead_ticks")),
        ):
            if ours > most:
                raise ConfigurationError(
                    f"{setting!r} of this process is {ours} ticks of {space.tick_us} µs, and that "
                    f"of the service {most}. It can't be more: lower it here, or raise it there."
                )

    def _not_seen(self, capability: str) -> NotSeenFromHere:  # noqa: ARG002
        # A holder's token does not allow inspecting.
        return NotSeenFromHere(
            f"The service at {' or '.join(self._link.base_urls)} lends the worker ids of "
            f"namespace {self.namespace.name!r}, and only the service knows their holders. Look "
            "in its admin, or at its leases/."
        )

    def probes(self) -> Mapping[str, Callable[[], None]]:
        return self._link.probes(unavailable=RegistryUnavailable)

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._link.abandon()

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self._link.close()

    # --- asking -----------------------------------------------------------------------

    def _ask(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        refusal: Callable[[Refused], Exception],
    ) -> Answer:
        try:
            return self._link.ask(
                self._path + path, body, of=self._what, unavailable=RegistryUnavailable
            )
        except Refused as error:
            raise refusal(error) from error

    def _settings(self) -> dict[str, Any]:
        space = self.namespace
        return {
            "fingerprint": dict(space.fingerprint),
            "window": space.window_ticks,
            "ahead": space.ahead_ticks,
        }

    # --- reading ----------------------------------------------------------------------

    def _read(self, answer: Answer, read: Callable[[Answer], T]) -> T:
        try:
            return read(answer)
        except (ValueError, TypeError) as error:
            raise RegistryUnavailable(
                f"The service gave an impossible answer for namespace {self.namespace.name!r}: "
                f"{sentence(error)} This process does not use it, since ids could repeat."
            ) from error

    def _granted(self, not_before: int, avoid: int | None, answer: Answer) -> Grant:
        words = _object(answer.body, "lease")
        space = self.namespace
        worker = space.check_worker(number_of(words, "worker"))
        if worker == avoid:
            raise ValueError(f"worker id {worker} was to be avoided")
        start = number_of(words, "start", least=not_before, most=space.max_ticks)
        until = number_of(words, "until", least=start, most=space.max_ticks)
        lease = Lease(
            namespace=space.name,
            worker=worker,
            token=word_of(words, "token"),
            start=start,
            until=until,
            generation=number_of(words, "generation"),
        )
        return Grant(lease, _reading(answer))

    def _renewed(self, lease: Lease, answer: Answer) -> Grant:
        words = _object(answer.body, "lease")
        until = number_of(words, "until", least=lease.until, most=self.namespace.max_ticks)
        same = _words(replace(lease, until=until))
        if {name: str(words.get(name)) for name in same} != {n: str(v) for n, v in same.items()}:
            raise ValueError("it is another lease")
        return Grant(replace(lease, until=until), _reading(answer))

    def _refusal_of(self, lease: Lease, error: Refused) -> Exception:
        return lost(lease) if error.code == "lease_lost" else self._refusal(error)

    def _refusal(self, error: Refused) -> Exception:
        space, body = self.namespace, error.body
        kinds: dict[str, type[IdgenError]] = {
            "time_exhausted": TimeExhausted,
            "clock_before_epoch": ClockBeforeEpoch,
            "settings_differ": ConfigurationError,
        }
        if error.code == "no_free_worker":
            return NoFreeWorker(space.name, space.workers)
        if error.code == "namespace_mismatch" and "setting" in body:
            return NamespaceMismatch(
                space.name,
                str(body["setting"]),
                body.get("stored"),
                body.get("configured"),
                by_service=True,
            )
        if error.code == "too_far_ahead":
            with suppress(ValueError):
                tick, latest = number_of(body, "asked"), number_of(body, "latest")
                return too_far_ahead(space, tick, latest)
        if error.code in kinds:
            return kinds[error.code](f"The service says: {error.detail}")
        return RegistryUnavailable(
            f"The service lends no worker id of namespace {space.name!r}: {error}{way_out(error)}"
        )


def _label(holder: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in holder[:MOST_HOLDER])


def _words(lease: Lease) -> dict[str, Any]:
    return {
        "worker": lease.worker,
        "token": lease.token,
        "start": str(lease.start),
        "until": str(lease.until),
        "generation": lease.generation,
    }


def _reading(answer: Answer) -> Reading:
    now_us = number_of(answer.body, "now_us")
    return Reading(now_us, answer.sent_ns, answer.received_ns)


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"{name!r} is missing")
    return value
