"""How many ids of a tag have to lie ready, for an outage not to be felt."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.errors import ConfigurationError

__all__ = ["Forecast", "check_outage"]

LONGEST_OUTAGE = 86_400.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a tag's ids are used at, and what lies ready. Frozen."""

    tag: str
    rate: float
    """Ids a second, of the whole fleet; 0.0 if it is not known, or nobody uses them."""
    stock: int
    """Ids that lie ready."""

    def wanted(self, outage: float) -> int:
        """How many ids are to lie ready to last ``outage`` seconds; 0 for an idle tag.

        A rate dies away rather than becoming 0: less than one id is none.
        """
        ids = self.rate * outage
        return math.ceil(ids) if ids >= 1 else 0

    def lacks(self, outage: float) -> int:
        """How many ids have to be fetched; never less than 0."""
        return max(0, self.wanted(outage) - self.stock)

    @property
    def lasts(self) -> float:
        """For how many seconds the stock suffices."""
        return self.stock / self.rate if self.rate > 0 else math.inf


def check_outage(outage: object) -> float:
    """Return ``outage`` (seconds) if it can be one, else raise :class:`ConfigurationError`."""
    number = isinstance(outage, (int, float)) and not isinstance(outage, bool)
    if not number or not 0 <= outage <= LONGEST_OUTAGE:  # type: ignore[operator]
        raise ConfigurationError(
            f"An outage must be 0 to {LONGEST_OUTAGE:g} seconds, not {outage!r}."
        )
    return float(outage)  # type: ignore[arg-type]
