"""Finds the table of an id, among several tables of one shape."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo

from ...core.clock import is_aware
from ...core.errors import ConfigurationError
from ...core.options import check_whole
from ...process.maps import generators


class ModuloTables:
    """``orders_0`` to ``orders_3``, by the remainder of the id. Frozen; thread-safe.

    ``pattern`` has one ``{}``, for the number. With a ``sequence_start`` of 0 the snowflakes of a
    quiet process land in one table: leave that option of the generator out.
    """

    def __init__(self, pattern: str, count: int) -> None:
        check_whole("count", count, least=1, most=1_000_000)
        if pattern.count("{}") != 1:
            raise ConfigurationError(f"pattern must contain {{}} exactly once, unlike {pattern!r}.")
        self._names = tuple(pattern.replace("{}", str(number)) for number in range(count))

    def __call__(self, value: int) -> str:
        """The table of the id ``value``."""
        return self._names[value % len(self._names)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


class IntervalTables:
    """``orders_2026_11``, by the time in a snowflake. Frozen; thread-safe.

    ``pattern`` is a ``strftime()`` format: ``orders_%Y_%m`` means a table a month. ``generator``
    is the alias that makes the ids; days begin at midnight in ``time_zone``.
    """

    def __init__(
        self, pattern: str, *, generator: str = "default", time_zone: tzinfo = UTC
    ) -> None:
        early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2028, 12, 30, tzinfo=UTC)
        if early.strftime(pattern) == late.strftime(pattern):
            raise ConfigurationError(
                f"pattern must contain a time, such as 'orders_%Y_%m', unlike {pattern!r}."
            )
        self._pattern = pattern
        self._generator = generator
        self._time_zone = time_zone

    def __call__(self, value: int) -> str:
        """The table of the id ``value``. Raises :class:`InvalidId`."""
        return self.at(generators[self._generator].decode(value).created)

    def at(self, when: datetime) -> str:
        """The table of rows made at ``when`` (aware)."""
        if not is_aware(when):
            raise ConfigurationError(f"{when!r} needs a time zone.")
        return when.astimezone(self._time_zone).strftime(self._pattern)
