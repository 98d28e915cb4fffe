"""Numbers that begin again each day, month or year: ``2026-11-21-000042``.

Each period has its own tag, made on first use. One row counts the period's numbers for all
processes, time zones and clocks, so no number repeats, and a clock that goes back does not
restart an earlier period.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, tzinfo
from typing import Final

from django.utils import timezone

from ..core.errors import ConfigurationError
from ..core.generator import Generator
from ..core.options import check_text, check_whole
from ..core.segment import check_tag
from ..db.dialects import aware_moment
from ..process.maps import segments

PERIODS: Final = {"day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
"""The ``strftime()`` format of each period, in tags and in numbers."""
STEP_BACK = timedelta(days=1)
"""A clock that is further behind is right, and its earlier reading was wrong."""


class PeriodNumbers:
    """Texts such as ``2026-11-21-000042``, for people. Thread-safe.

    ``tag`` names the counter. Each period has a row of its own, such as ``orders.2026-11-21``.
    ``period`` is its length: ``"day"``, ``"month"`` or ``"year"``. It begins in ``time_zone`` (by
    default the project's ``TIME_ZONE``, not the active one). ``digits`` (1 to 18) is the least
    number of digits. ``prefix`` precedes the period.

    Within a period numbers rise in each process, with gaps, as segments do. While the clock is
    behind by up to :data:`STEP_BACK`, a process stays in the latest period. It does not stay in
    one that a wrong reading of the clock began.

    Raises :class:`ConfigurationError` and :class:`InvalidTag`.
    """

    def __init__(
        self,
        tag: str,
        *,
        period: str = "day",
        digits: int = 6,
        prefix: str = "",
        time_zone: tzinfo | None = None,
    ) -> None:
        if period not in PERIODS:
            raise ConfigurationError(f"period must be one of {', '.join(PERIODS)}, not {period!r}.")
        check_tag(f"{check_tag(tag)}.0000-00-00")
        self.tag = tag
        self._format = PERIODS[period]
        self._digits = check_whole("digits", digits, least=1, most=18)
        if not check_text("prefix", prefix).isprintable():
            raise ConfigurationError(f"prefix must be printable, not {prefix!r}.")
        if time_zone is not None and not isinstance(time_zone, tzinfo):
            raise ConfigurationError(
                f"time_zone must be a tzinfo, such as ZoneInfo('Asia/Shanghai'), not {time_zone!r}."
            )
        self._prefix = prefix
        self._time_zone = time_zone
        self._last = ""
        self._lock = threading.Lock()

    def next(self) -> str:
        """The next number of the current period. Raises as ``segments[tag].next_id()``."""
        period = self._current()
        return self._text(period, self._generator(period).next_id())

    async def anext(self) -> str:
        """:meth:`next` for coroutines."""
        period = self._current()
        return self._text(period, await self._generator(period).anext_id())

    def _current(self) -> str:
        now = aware_moment(timezone.now())
        with self._lock:
            if not self._period_at(now) <= self._last <= self._period_at(now + STEP_BACK):
                self._last = self._period_at(now)
            return self._last

    def _period_at(self, moment: datetime) -> str:
        zone = self._time_zone or timezone.get_default_timezone()
        # A year with fewer than four digits would not sort.
        return moment.astimezone(zone).strftime(self._format).rjust(4, "0")

    def _generator(self, period: str) -> Generator:
        tag = f"{self.tag}.{period}"
        # Made on first use even if make_tags is off: each day has a new tag.
        return segments.get(tag) or segments.open(tag)

    def _text(self, period: str, number: int) -> str:
        return f"{self._prefix}{period}-{number:0{self._digits}d}"
