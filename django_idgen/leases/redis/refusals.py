"""What a script's refusal means, as an error that says what to do."""

from __future__ import annotations

from ...core.errors import (
    ClockBeforeEpoch,
    ConfigurationError,
    IdgenError,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
    TimeExhausted,
)
from ...core.lease import PROTOCOL_VERSION, Namespace, too_far_ahead
from ...core.lending import check_fingerprint
from ...db.redis_client import OwnRedis
from .scripts import Reply

__all__ = ["refusal"]


def refusal(
    reply: Reply, namespace: Namespace, own: OwnRedis, failure: Exception | None = None
) -> IdgenError:
    """The error for an answer other than a grant; ``failure`` is why no ceiling was raised."""
    words = reply.words
    match reply.status:
        case "none":
            return NoFreeWorker(namespace.name, namespace.workers)
        case "epoch":
            return ClockBeforeEpoch(
                f"The clock of Redis stands {words[0]} ticks of {namespace.tick_us} µs before the "
                f"epoch of namespace {namespace.name!r}. Mend the clock, or choose an earlier "
                f"EPOCH."
            )
        case "exhausted":
            return TimeExhausted(
                f"Tick {words[0]} does not fit the time bits of namespace {namespace.name!r}: "
                f"they end at {namespace.max_ticks}. Move to a layout with more time bits or a "
                f"later epoch."
            )
        case "ahead":
            return too_far_ahead(namespace, *map(int, words))
        case "mismatch":
            return _mismatch(namespace, words[0], words[1])
        case "protocol":
            return ConfigurationError(
                f"Namespace {namespace.name!r} was written to Redis with protocol {words[0]}, but "
                f"this version of django_idgen knows {PROTOCOL_VERSION}. Upgrade django_idgen in "
                f"this process."
            )
        case "denied":
            return own.refused(words[0])
        case "hidden":
            return ConfigurationError(
                f"The Redis of CACHES[{own.alias!r}] does not show run_id and master_replid in "
                f"INFO, without which a loss of its data can't be noticed. Use another Redis, or "
                f"the registry in the database."
            )
        case _:
            return RegistryUnavailable(_words(reply, namespace, own, failure))


def _words(reply: Reply, namespace: Namespace, own: OwnRedis, failure: Exception | None) -> str:
    redis = f"The Redis of CACHES[{own.alias!r}]"
    match reply.status:
        case "replica":
            return f"{redis} is a replica, which may not lend. Point LOCATION at the primary."
        case "wait":
            seconds = int(reply.words[1]) * namespace.tick_us / 1e6
            return (
                f"{redis} lost what it had lent for namespace {namespace.name!r}. With "
                f"after_loss='wait' it lends again in {seconds:.1f} s; 'ahead' would go on at "
                f"once, with ids stamped ahead of the time."
            )
        case "raise":
            return (
                f"{redis} has lent all ticks that it may for namespace {namespace.name!r}, and "
                f"the database has not lent it more: {failure} (A longer 'stride' survives a "
                f"longer outage of the database.)"
            )
    return f"{redis} answered with {reply.status!r}, which is not understood."


def _mismatch(namespace: Namespace, what: str, stored: str) -> IdgenError:
    if what == "fingerprint":
        try:
            check_fingerprint(namespace, stored)
        except NamespaceMismatch as error:
            return error
    return NamespaceMismatch(namespace.name, what, stored, "another one")
