"""Seeing to a tag's row before ids are taken of it: made, mended, or refused.

An ordinary fetch asks for nothing of this; it comes here when it finds a row missing
or not as it should be. What is written here is committed before it is used:

* the row of a new tag;
* the longest range that a fetch may take, so that a server that takes over knows
  how much may have been lost;
* that another server has taken over: since it may have missed the last fetches,
  ``failover_skip`` times the longest range is skipped, and tags made from then on
  start past what a tag may have taken that was lost whole;
* that the row was put back, or deleted, under the process that asks: it knows how far
  it came itself, while other processes may have come as much further as a failover
  may lose. So as much is skipped.

Locks are taken in one order: the installation's row, then the tag's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from secrets import token_hex

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Max, Q, QuerySet

from ..core.errors import ConfigurationError, InvalidTag, SegmentUnavailable, TagPaused
from ..core.lease import PROTOCOL_VERSION
from ..core.segment import ALONE, MAX_ID, MAX_STEP, Demand, Shard
from ..db import dialects
from ..db.dialects import Now
from ..db.row_writes import insert_row, update_row, why_alike
from ..models import Installation, LeafAlloc

__all__ = ["Floor", "InstallationRecord", "Opened", "RowOpening", "ShardUnknown", "Sharing", "Skip"]

ANY = ""
"""Stands for every namespace in an installation's row that was made anew."""


class InstallationRecord:
    """The row of ``alias``, in the transaction of the calling thread.

    Holds no state of its own, so that threads may share it.
    """

    def __init__(self, alias: str, *, failover_skip: int) -> None:
        self.alias = alias
        self._failover_skip = failover_skip

    def lock(self) -> Installation:
        """The row, locked; made anew if somebody deleted it."""
        rows = Installation.objects.using(self.alias).filter(pk=1)
        return rows.select_for_update().first() or self._remade()

    def _remade(self) -> Installation:
        """The row anew, which somebody deleted."""
        made = Installation(
            key=1,
            identity=token_hex(16),
            protocol=PROTOCOL_VERSION,
            namespaces=json.dumps({ANY: {}}),
        )
        self._recall(made)
        insert_row(made, self.alias)
        return made

    def _recall(self, installation: Installation) -> None:
        """Have a row that was made anew know what the tags' rows do, and suppose a loss."""
        tags = LeafAlloc.objects.using(self.alias)
        known = tags.aggregate(
            largest=Max("largest_step", default=0), delta=Max("delta", default=1)
        )
        installation.largest_step = max(installation.largest_step, known["largest"])
        installation.first_id = self.past_loss(installation.first_id, known["largest"])
        rows = tags.filter(delta=known["delta"]).values_list("remainder", flat=True)
        remainders = set(rows.order_by("remainder").distinct()[:2])
        if len(remainders) == 1:
            installation.delta, installation.remainder = known["delta"], remainders.pop()

    def notice_server(self, installation: Installation, server: str) -> bool:
        """See whether ``server`` took over from another; whether anything was written."""
        if not server or installation.server == server:
            return False
        if installation.server:
            longest = max(installation.largest_step, 1)
            installation.first_id = self.past_loss(installation.first_id, longest)
        elif LeafAlloc.objects.using(self.alias).exclude(server="").exists():
            self._recall(installation)  # it is a registry of leases that made it anew
        installation.server = server
        names = ("server", "first_id", "largest_step", "delta", "remainder")
        update_row(installation, self.alias, *names)
        return True

    def past_loss(self, mark: int, longest: int) -> int:
        """Past what fetches of at most ``longest`` may have taken from ``mark`` on."""
        return min(mark + self._failover_skip * longest, MAX_ID)

    def raise_longest(self, installation: Installation, wanted: int) -> bool:
        """Have it know of ranges of ``wanted``; whether it did not."""
        if installation.largest_step >= wanted:
            return False
        installation.largest_step = wanted
        update_row(installation, self.alias, "largest_step")
        return True

    def is_growing(self) -> bool:
        """Whether processes that know of fewer databases are still welcome."""
        rows = Installation.objects.using(self.alias).filter(pk=1)
        return bool(rows.values_list("growing", flat=True).first())


_FLOOR = "this process was granted ids up to there: the table was flushed or restored"
_TAKEN_OVER = "another server had taken over before this tag was made"


class Sharing(Enum):
    """How far a database is one of several."""

    NEW = "new"
    """It gave out nothing, and did not know of the others."""
    READY = "ready"
    """It knows its place, and gave out nothing yet."""
    USED = "used"
    """It gives out ids."""


class ShardUnknown(SegmentUnavailable):
    """A new tag, in a database that was never told which databases it shares its tags with."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Ids of a tag that are skipped, as they may have been given out already."""

    start: int
    stop: int
    why: str


@dataclass(frozen=True, slots=True)
class Floor:
    """What the process that asks was granted of a tag."""

    lowest: int
    """The lowest id that it may still be given: 1, or the end of its highest segment."""
    expected: int = 0
    """What lies below was granted without the table, which so can't have lost it."""
    granted: int | None = None
    """As far as it was granted, where that is not up to ``lowest``."""


@dataclass(slots=True)
class Opened:
    """A tag whose rows this transaction has locked."""

    row: LeafAlloc
    changed: bool = False
    """Whether anything was written: it is to be committed before ids are taken."""
    skips: list[Skip] = field(default_factory=list)


class RowOpening:
    """Opens rows of ``alias`` in the transaction of the calling thread.

    ``shard`` is what the settings say of the database, if they do. Holds no state of
    its own, so that threads may share it.
    """

    def __init__(
        self,
        alias: str,
        *,
        default_step: int,
        shard: Shard | None,
        failover_skip: int,
        server_identity: bool,
    ) -> None:
        self.alias = alias
        self._default_step = default_step
        self._shard = shard
        self._server_identity = server_identity
        self._record = InstallationRecord(alias, failover_skip=failover_skip)

    def open(
        self, connection: BaseDatabaseWrapper, tag: str, floor: Floor, demand: Demand
    ) -> Opened:
        """Lock the rows, and mend what has to be.

        Raises :class:`SegmentUnavailable`, :class:`TagPaused`, :class:`ConfigurationError`
        or :class:`ShardUnknown`; :class:`InvalidTag` where the database takes the tag for another.
        """
        installation = self._record.lock()
        server = dialects.server_identity(connection) if self._server_identity else ""
        changed = self._record.notice_server(installation, server)
        row = self._rows(tag).select_for_update().first()
        if row is not None and row.paused:
            raise TagPaused(tag)
        if row is None:
            opened = self._make(installation, tag, floor, demand, server)
        else:
            opened = self._mend(installation, row, floor, demand, server)
        opened.changed |= changed
        return opened

    def check(self, tag: str, shard: Shard) -> None:
        """Raise :class:`ConfigurationError` if a row with ``shard`` isn't what we are set to."""
        ours = self._shard
        if ours is None or shard == ours:
            return
        if shard.sound and shard.within(ours) and self._record.is_growing():
            return
        raise ConfigurationError(
            f"Tag {tag!r} has {shard} in leaf_alloc of database {self.alias!r}, but this process' "
            f"'databases' make it {ours}. Going on would repeat ids. Give all processes the "
            f"same list, in the same order; 'manage.py idgen_grow' moves the rows over to a "
            f"longer one."
        )

    def share(self, *, write: bool) -> Sharing:
        """Have new tags be made with our shard; without ``write``, see only if they can be.

        Raises :class:`ConfigurationError` where the database gives out ids otherwise.
        """
        installation = self._record.lock()
        shard, ours = Shard(installation.delta, installation.remainder), self._shard or ALONE
        used = LeafAlloc.objects.using(self.alias).filter(Q(max_id__gt=1) | Q(largest_step__gt=0))
        tag = used.values_list("pk", flat=True).first()
        if shard == ours or (installation.growing and shard.within(ours)):
            return Sharing.READY if tag is None else Sharing.USED
        if shard != ALONE or tag is not None:
            raise self._other_shard("tags" if tag is None else f"tags (such as {tag!r})", shard)
        if write:
            installation.delta, installation.remainder = ours.delta, ours.remainder
            update_row(installation, self.alias, "delta", "remainder")
        return Sharing.NEW

    # --- the tag ---------------------------------------------------------------

    def _rows(self, tag: str) -> QuerySet[LeafAlloc]:
        return LeafAlloc.objects.using(self.alias).filter(pk=tag)

    def _make(
        self, installation: Installation, tag: str, floor: Floor, demand: Demand, server: str
    ) -> Opened:
        shard = self._shard_of_new_rows(installation, tag)
        wanted = _longest(demand.length(self._default_step) * shard.delta)
        if self._record.raise_longest(installation, wanted):
            # Alone: were the row lost with it, nothing would tell how far the tag came.
            return Opened(LeafAlloc(biz_tag=tag), changed=True)
        lost = self._has_lost(1, floor)
        # Where a server took over before, rows of the tag's table say that it may be one that
        # was lost whole: with all that processes hold above them.
        above_rows = installation.first_id > 1 and floor.lowest > 1
        past = self._past_others(installation, floor) if lost or above_rows else floor.lowest
        start = max(past, installation.first_id)
        row = LeafAlloc(
            biz_tag=tag,
            max_id=start,
            step=self._default_step,
            delta=shard.delta,
            remainder=shard.remainder,
            largest_step=wanted,
            server=server,
        )
        if why := why_alike(row, self.alias):
            raise InvalidTag(tag, why)
        # Two at once: the second one's whole transaction fails and is run again.
        # Going on after the error would risk a deadlock on MySQL.
        insert_row(row, self.alias)
        opened = Opened(row, changed=True)
        if lost:
            opened.skips.append(Skip(1, start, _FLOOR))
        elif installation.first_id >= start > 1:
            opened.skips.append(Skip(1, start, _TAKEN_OVER))
        return opened

    def _has_lost(self, max_id: int, floor: Floor) -> bool:
        """Whether a row that stands at ``max_id`` knew more when the process asked last."""
        # Of a shared tag each database stands elsewhere, and the process may have been
        # granted ids by another one.
        shared = self._shard is not None and self._shard.delta > 1
        granted = floor.lowest if floor.granted is None else floor.granted
        return not shared and granted > max(max_id, floor.expected)

    def _past_others(self, installation: Installation, floor: Floor) -> int:
        """Past what other processes may have been granted of a row that was lost."""
        return self._record.past_loss(floor.lowest, installation.largest_step)

    def _mend(
        self, installation: Installation, row: LeafAlloc, floor: Floor, demand: Demand, server: str
    ) -> Opened:
        self._check_numbers(row)
        opened = Opened(row)
        changes = self._adopt(installation, row)
        self.check(row.biz_tag, Shard(row.delta, row.remainder))
        changes |= self._follow_server(installation, opened, server)
        needed = _longest(demand.length(row.step) * row.delta)
        if row.largest_step < needed:
            row.largest_step = needed
            changes |= {"largest_step"}
        opened.changed |= self._record.raise_longest(installation, row.largest_step)
        if self._has_lost(max(row.max_id, 1), floor):
            past = self._past_others(installation, floor)
            opened.skips.append(Skip(row.max_id, past, _FLOOR))
            row.max_id, row.measured_at = past, None
            changes |= {"max_id", "measured_at"}
        if changes:
            row.update_time = Now()
            update_row(row, self.alias, "update_time", *changes)
        opened.changed |= bool(changes)
        return opened

    def _adopt(self, installation: Installation, row: LeafAlloc) -> set[str]:
        """Have a row that Leaf or the admin made give out this database's ids alone."""
        shared = self._shard is not None and self._shard.delta > 1
        if row.largest_step or row.delta > 1 or not (shared or installation.delta > 1):
            return set()
        shard = self._shard_of_new_rows(installation, row.biz_tag)
        row.delta, row.remainder = shard.delta, shard.remainder
        return {"delta", "remainder"}

    def _follow_server(self, installation: Installation, opened: Opened, server: str) -> set[str]:
        row = opened.row
        if not server or row.server == server:
            return set()
        # A row without one, where servers have changed, may have lost its first fetch.
        if row.server or installation.first_id > 1:
            longest = row.largest_step or max(installation.largest_step, row.step)
            before, row.max_id = row.max_id, self._record.past_loss(max(row.max_id, 1), longest)
            row.measured_at = None  # what is skipped was not used
            why = f"server {row.server or '(unknown)'} was followed by {server}"
            opened.skips.append(Skip(before, row.max_id, why))
        row.server = server
        return {"server", "max_id", "measured_at"}

    def _shard_of_new_rows(self, installation: Installation, tag: str) -> Shard:
        stored = Shard(installation.delta, installation.remainder)
        ours = self._shard
        if ours is None or stored == ours or (installation.growing and stored.within(ours)):
            return stored
        if stored == ALONE:
            raise ShardUnknown(
                f"Database {self.alias!r} has never shared its tags, so that tag {tag!r} can't be "
                f"made with {ours}. Use it through ShardedSource(databases=[...])."
            )
        raise self._other_shard("tags", stored)

    def _other_shard(self, what: str, stored: Shard) -> ConfigurationError:
        return ConfigurationError(
            f"Database {self.alias!r} has {what} with {stored}, but this process' 'databases' "
            f"make it {self._shard}. Going on would repeat ids. Give all processes the same list, "
            f"in the same order; 'manage.py idgen_grow' moves the rows over to a longer one."
        )

    def _check_numbers(self, row: LeafAlloc) -> None:
        if not 1 <= row.step <= MAX_STEP:
            raise SegmentUnavailable(
                f"Tag {row.biz_tag!r} has step {row.step} in leaf_alloc of database "
                f"{self.alias!r}; it must be 1 to {MAX_STEP}. Correct the row, in the admin for "
                f"example."
            )
        if not Shard(row.delta, row.remainder).sound:
            raise SegmentUnavailable(
                f"Tag {row.biz_tag!r} has delta={row.delta}, remainder={row.remainder} in "
                f"leaf_alloc of database {self.alias!r}; delta must be 1 to 1024, and the "
                f"remainder less than it. Correct the row."
            )


def _longest(moved: int) -> int:
    """What to keep as the longest range: the next one may be twice as long, and be lost."""
    return min(2 * moved, MAX_ID)
