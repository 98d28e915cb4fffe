"""The options of the registry in Redis, checked: each raises :class:`ConfigurationError`."""

from __future__ import annotations

from ...core.errors import ConfigurationError
from ...core.lease import Namespace
from ..option_values import checked_seconds
from .scripts import LAST_TICK

__all__ = ["AFTER_LOSS", "checked_after_loss", "stride_ticks"]

AFTER_LOSS = ("ahead", "wait")


def stride_ticks(namespace: Namespace, stride: float | None) -> int:
    """``stride`` (seconds; two windows unless given) in ticks, at least a window."""
    if namespace.max_ticks > LAST_TICK:
        raise ConfigurationError(
            f"Redis counts ticks exactly up to 2**52, but the layout of namespace "
            f"{namespace.name!r} has {namespace.max_ticks.bit_length() - 1} time bits. Use a "
            f"layout with longer ticks, or the registry in the database."
        )
    if stride is None:
        return min(2 * namespace.window_ticks, LAST_TICK // 4)
    ticks = -(-int(checked_seconds("stride", stride, most=1e6) * 1e6) // namespace.tick_us)
    if ticks < namespace.window_ticks:
        window = namespace.window_ticks * namespace.tick_us / 1e6
        raise ConfigurationError(
            f"stride must be at least a window of {window:g} s, not {stride!r}: no longer "
            f"window than it could ever be lent."
        )
    return min(ticks, LAST_TICK // 4)


def checked_after_loss(after_loss: object) -> str:
    """``after_loss`` if it is one of :data:`AFTER_LOSS`."""
    if after_loss not in AFTER_LOSS:
        raise ConfigurationError(f"after_loss must be 'ahead' or 'wait', not {after_loss!r}.")
    return str(after_loss)
