"""Changes to tags that people make: make, change, skip, pause, resume, clear, preload.

``max_id`` only goes up, in one statement that does not depend on a value read before. A tag is
made by an INSERT, never an UPDATE: a process may make it at the same moment by using it. No tag
that a process may use is deleted: it would start at 1 again.

The segment source says where a tag's rows are: in one database, in several that share the tag,
or where a router leads. Each edit is a transaction on a connection of its own. A database in
memory has only the caller's connection, and keeps marks outside of the rows, which are raised
first.

A fetch reads in the row that a tag is paused. Its ranges in the pool are thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from django.db import DatabaseError, DataError, IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Greatest

from ...core.errors import ConfigurationError, IdgenError, InvalidTag, SegmentUnavailable, one_line
from ...core.segment import MAX_ID, Shard, check_step, check_tag
from ...db.connection import Place, home_connection, home_of, own_connection, place_of
from ...db.dialects import Now
from ...db.rows import insert_row, is_any, read_first, rows_of, why_alike
from ...db.tables import make_missing_tables, missing_tables
from ...db.transactions import Transactions
from ...models import Installation, LeafAlloc
from ...process import maps
from ...process.tags import (
    Tag,
    find_tag,
    half_migrated,
    is_fetched_from,
    known_tag,
    next_free_id,
    source_behind_pool,
    source_in_use,
    source_of_tags,
)

T = TypeVar("T")
MODELS = ("LeafAlloc", "Installation")
TIMEOUT = 5.0
"""Seconds for one edit on a database server."""


class TagExists(IdgenError):
    """The tag to make exists already."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(f"Tag {tag!r} exists already.")


class Unstorable(IdgenError):
    """The database can't store a value, such as an emoji in a column of 3-byte UTF-8."""


class SkipRefused(IdgenError):
    """The target of a skip is not ahead of the tag, or too far ahead."""

    def __init__(self, tag: str, *, max_id: int, wanted: int, most: int) -> None:
        self.tag = tag
        self.max_id = max_id
        self.wanted = wanted
        self.most = most
        """How many ids one skip may pass over."""
        end = min(max_id + most, MAX_ID)
        super().__init__(
            f"The next id of tag {tag!r} is {max_id}. "
            + (
                f"One skip passes over {most} ids at most: to {end}, not to {wanted}."
                if self.is_too_far
                else f"A tag never goes back, so it can't skip to {wanted}."
            )
        )

    @property
    def is_too_far(self) -> bool:
        return self.wanted > self.max_id


class StepOvertaken(IdgenError):
    """Another user changed the step in the meantime; their value stays."""

    def __init__(self, tag: str, *, seen: int, stored: int | None) -> None:
        self.tag = tag
        self.seen = seen
        self.stored = stored
        """The step now; None if the tag is gone."""
        state = "is gone" if stored is None else f"now has a step of {stored}, not of {seen}"
        super().__init__(f"Tag {tag!r} {state}: it was not changed.")


class HeldInRedis(IdgenError):
    """A generator has taken ids of the tag to Redis: they would be given out all the same."""

    def __init__(self, tag: str, alias: str) -> None:
        self.tag = tag
        super().__init__(
            f"Ids of tag {tag!r} are in Redis, where generator {alias!r} takes them from: it would "
            f"give them out all the same. 'manage.py idgen_skip {tag}' says what to do by hand."
        )


class PoolStillOpen(SegmentUnavailable):
    """The tag is paused in its databases, but its pool may still give out ids."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(tag)

    def __str__(self) -> str:
        return (
            f"Tag {self.tag!r} is paused, but Redis can't be asked to clear its pool. The ids in "
            f"it may still be handed out until the next preloading clears them. Pause the tag "
            f"again when Redis answers."
        )


# --- making --------------------------------------------------------------------------------


def make_tag(tag: str, *, step: int, description: str = "", max_id: int = 1) -> Tag:
    """Make a tag whose first id is ``max_id`` or above, in all of its databases.

    Raises :class:`TagExists`, also if a process makes it at this moment by using it;
    :class:`InvalidTag`, :class:`ConfigurationError` for a step
    out of range, :class:`Unstorable`, :class:`TagsElsewhere` and
    :class:`SegmentUnavailable`.
    """
    check_tag(tag)
    check_step(step)
    source = source_of_tags()
    if find_tag(tag) is not None:
        raise TagExists(tag)
    source.agree(tag)
    if not source.marks(tag).open_tag(tag, step=step, max_id=max_id):
        raise TagExists(tag)
    for alias in source.route(tag):
        row = LeafAlloc(biz_tag=tag, max_id=max_id, step=step, description=description)
        try:
            edit_rows(alias, partial(insert_tag_row, row, alias))
        except TagExists:
            if place_of(alias) is Place.SERVER:
                raise
            # Another process has written the row of the mark that we just made.
            change_row(alias, tag, step=step, description=description, max_id=max_id)
    return known_tag(tag)


# --- changing ------------------------------------------------------------------------------


def change_tag(tag: str, *, step: int | None = None, description: str | None = None) -> Tag:
    """Change what is given, in all databases of the tag; a step counts from the next fetch.

    Raises :class:`TagUnknown`, else as :func:`make_tag`.
    """
    if step is not None:
        check_step(step)
    known = known_tag(tag)
    source_of_tags()
    for alias, row in known.rows.items():
        _change_or_insert(alias, row, step=step, description=description)
    return known_tag(tag)


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """What a skip of a tag to :attr:`to` loses. Frozen; made by :func:`plan_skip`."""

    tag: str
    before: int
    """The first id that none of its databases gave out."""
    to: int
    """The id that is given out next."""
    losses: Mapping[str, range]
    """By the alias of the database, the ids that are never given out."""

    @property
    def lost(self) -> int:
        """How many ids are never given out."""
        return sum(map(len, self.losses.values()))


def plan_skip(tag: str, *, most: int, to: int | None = None, by: int | None = None) -> SkipPlan:
    """Plan to continue the tag at ``to``, or ``by`` ids further. Changes nothing.

    ``most``: how many ids it may skip. A skip to the present next id completes one that failed
    after one of several databases.
    Raises :class:`SkipRefused`, :class:`TagUnknown`, :class:`HeldInRedis` and
    :class:`SegmentUnavailable`.
    """
    _check_not_in_redis(tag)
    known = known_tag(tag)
    source = source_of_tags()
    route = source.route(tag)
    mark: int = source.marks(tag).max_id(tag)
    stands = max(known.max_id, mark)
    target = stands + (by or 0) if to is None else to
    lowest = stands - (len(route) > 1 and lowest_free_id(tag) < stands)  # one is below the others
    if not lowest < target <= min(stands + most, MAX_ID):
        raise SkipRefused(tag, max_id=stands, wanted=target, most=most)
    rows = {alias: known.rows.get(alias) or LeafAlloc(max_id=1) for alias in route}
    # The mark of a database in memory, which has no others beside it, may be ahead of its row.
    floor = 0 if len(route) > 1 else mark
    losses = {
        alias: range(
            Shard(row.delta, row.remainder).first(max(row.max_id, floor)), target, row.delta
        )
        for alias, row in rows.items()
    }
    return SkipPlan(tag, stands, target, losses)


def skip_tag(tag: str, *, most: int, to: int | None = None, by: int | None = None) -> Tag:
    """Continue the tag as :func:`plan_skip` plans it: no later fetch gets ids below.

    Processes and the pool keep what they hold. Raises as :func:`plan_skip`.
    """
    target = plan_skip(tag, most=most, to=to, by=by).to
    known = known_tag(tag)
    source = source_of_tags()
    # The mark of a database in memory is outside of the row, and goes first.
    source.marks(tag).raise_mark(tag, target)
    for alias in source.route(tag):
        _change_or_insert(alias, known.rows.get(alias) or _unused_row(known), max_id=target)
    return known_tag(tag)


def raise_tag(tag: str, to: int, *, like: Tag | None = None) -> None:
    """Continue the tag at ``to`` or above, in all of its databases; make it if it is missing.

    ``like``: the tag whose step, description and pause a missing tag gets.

    Uses none of the caller's connections to a server. Processes and the pool keep what they
    hold. Raises :class:`TagsElsewhere`, :class:`SegmentUnavailable` and
    :class:`ConfigurationError`.
    """
    source = source_of_tags()
    source.agree(tag)
    source.marks(tag).raise_mark(tag, to)
    step = maps.current_settings().segments.default_step if like is None else like.first.step
    description = "" if like is None else like.first.description
    paused = like is not None and like.paused
    for alias in source.route(tag):
        if place_of(alias) is not Place.FORBIDDEN:
            row = LeafAlloc(biz_tag=tag, step=step, description=description, paused=paused)
            _change_or_insert(alias, row, max_id=to)
            if paused:
                _set_paused_mark(alias, tag, paused=True)


def lowest_free_id(tag: str) -> int:
    """Where the lowest of the tag's databases continues; 1 if one has no row of it."""
    route = source_of_tags().route(tag)
    if len(route) == 1:
        return next_free_id(tag)
    known = known_tag(tag)
    return min(known.rows[alias].max_id if alias in known.rows else 1 for alias in route)


def change_row(
    alias: str,
    tag: str,
    *,
    step: int | None = None,
    description: str | None = None,
    max_id: int | None = None,
    paused: bool | None = None,
) -> bool:
    """Change the tag's row in ``alias``, in the caller's transaction; False if there is none.

    ``max_id`` is raised, whatever it is by now, and never lowered.
    """
    given = {"step": step, "description": description, "paused": paused}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if max_id is not None:
        changes["max_id"] = Greatest(F("max_id"), max_id)
        changes["measured_at"] = None  # the skipped ids were not used
    rows = rows_of(LeafAlloc, alias).filter(pk=tag)
    return bool(rows.update(**changes, update_time=Now())) if changes else is_any(rows)


def _change_or_insert(alias: str, row: LeafAlloc, **changes: Any) -> None:
    """Change the row of a known tag; insert it if it is not written yet."""
    change = partial(change_row, alias, row.pk, **changes)
    if edit_rows(alias, change):
        return
    for name, value in changes.items():
        if value is not None:
            setattr(row, name, value)
    try:
        edit_rows(alias, partial(insert_tag_row, row, alias))
    except TagExists:  # a process was faster
        edit_rows(alias, change)


def replace_step(tag: str, database: str, *, seen: int, to: int) -> None:
    """Change the step of ``tag`` from ``seen``, read in ``database``, in all its databases.

    If its ids don't come from ``database`` (rows of another site), in that row only, and in the
    caller's transaction. Raises :class:`StepOvertaken` and what :func:`change_tag` does.
    """
    check_step(to)
    swap = partial(_swap_step, tag, database, seen, to)
    if not is_fetched_from(tag, database):
        swap()
        return
    others = [alias for alias in known_tag(tag).rows if alias != database]
    edit_rows(database, swap)
    for alias in others:
        edit_rows(alias, partial(change_row, alias, tag, step=to))


def _swap_step(tag: str, alias: str, seen: int, to: int) -> None:
    rows = rows_of(LeafAlloc, alias).filter(pk=tag)
    if rows.filter(step=seen).update(step=to, update_time=Now()):
        return
    row = read_first(rows)
    stored = None if row is None else row.step
    if stored != to:
        raise StepOvertaken(tag, seen=seen, stored=stored)


# --- pausing -------------------------------------------------------------------------------


def generator_in_redis(tag: str) -> str | None:
    """The alias of the generator that takes ids of ``tag`` to Redis; or None.

    A generator that has a tag of that name in another database does not count.
    """
    for alias, entry in maps.current_settings().tag_generators.items():
        if entry.tag == tag and entry.segments.source.load().is_pool:
            # A test may have replaced it by one without a source.
            theirs: Any = getattr(maps.generators[alias], "source", None)
            if theirs and set(theirs.behind.route(tag)) & set(source_behind_pool().route(tag)):
                return alias
    return None


def _check_not_in_redis(tag: str) -> None:
    alias = generator_in_redis(tag)
    if alias is not None:
        raise HeldInRedis(tag, alias)


def pause_tag(tag: str) -> Tag:
    """Stop giving out ids of ``tag``; may be repeated.

    Processes use up what they hold. The ids in the pool are thrown away: a gap.

    Raises :class:`.TagUnknown`, :class:`.TagsElsewhere`, :class:`HeldInRedis`,
    :class:`PoolStillOpen`, and :class:`SegmentUnavailable` if one of the tag's databases does not
    answer. Then the tag may be paused in the others.
    """
    _check_not_in_redis(tag)
    known = known_tag(tag)
    source = source_of_tags()
    for alias in source.route(tag):
        # A database that has given out none of its ids makes its row at the first fetch.
        row = known.rows.get(alias) or _unused_row(known)
        _change_or_insert(alias, row, paused=True)
        _set_paused_mark(alias, tag, paused=True)
    # Last, so that a range that was fetched before can't enter the pool after it was cleared.
    try:
        source_in_use().clear([tag], keep_highest=True)
    except (SegmentUnavailable, ConfigurationError) as error:
        raise PoolStillOpen(tag) from error
    return known_tag(tag)


def resume_tag(tag: str) -> Tag:
    """Give out ids of ``tag`` again; may be repeated.

    The next call of each process gets some. Raises as :func:`pause_tag`, but for
    :class:`PoolStillOpen`.
    """
    known = known_tag(tag)
    source_of_tags()
    for alias, row in known.rows.items():
        _change_or_insert(alias, row, paused=False)
        _set_paused_mark(alias, tag, paused=False)
    return known_tag(tag)


def _unused_row(known: Tag) -> LeafAlloc:
    """The row of a database that has given out none of the tag's ids yet."""
    first = known.first
    return LeafAlloc(
        biz_tag=known.name, max_id=known.max_id, step=first.step, description=first.description
    )


def _set_paused_mark(alias: str, tag: str, *, paused: bool) -> None:
    """Note it in memory once the row's change is committed; a rollback pauses nothing."""
    if place_of(alias) is Place.SERVER:
        return
    marks: Any = source_of_tags().marks(tag)
    transaction.on_commit(partial(marks.set_paused, tag, paused=paused), using=alias)


# --- the ids at hand: in this process and in the pool ----------------------------------------


class Cleared(NamedTuple):
    """What :func:`clear_tag` threw away."""

    held: int
    """How many ids this process held."""
    pool: bool | None
    """See :func:`clear_pool`."""

    @property
    def pool_note(self) -> str:
        """What happened to the pool, for the end of a sentence."""
        notes = {None: "", True: "; its pool is empty", False: "; its pool could NOT be emptied"}
        return notes[self.pool]


def preload_here(tag: str) -> bool:
    """Load now what this process keeps ahead of ``tag``; whether it came in time.

    Waits as long as a caller for an id does, and raises as for one.
    """
    generator: Any = maps.segments[check_tag(tag)]
    return bool(generator.preload(maps.segments.allocator().timeout))


def held_here(tag: str) -> int:
    """How many ids of ``tag`` this process holds; 0 if it doesn't use the tag."""
    made = maps.segments.get(tag)
    stats: Any = None if made is None else made.stats()
    return 0 if stats is None else int(stats.remaining)


def fill_pool(row: LeafAlloc) -> int | None:
    """Fill the pool with what the tag uses in the outage of the settings, or a step at least.

    Returns how many ids were added; None without a pool. Raises :class:`SegmentUnavailable`.
    """
    # Imported here, since few processes do the upkeep.
    from ..upkeep import Forecast

    pool = source_in_use()
    if not pool.is_pool:
        return None
    outage = maps.current_settings().segments.outage
    return pool.refill(row.pk, max(Forecast(row.pk, row.rate, 0).wanted(outage), row.step))


def clear_tag(tag: str, *, least: int = 0) -> Cleared:
    """Clear ``tag`` in this process and in the pool, after it has skipped ahead.

    ``least``: see :func:`clear_pool`.
    """
    # In this order: this process gives its ids back to the pool.
    return Cleared(clear_here(tag), clear_pool(tag, least=least))


def clear_here(tag: str) -> int:
    """Give back the ids of ``tag`` that this process holds; returns how many.

    They go into the pool, or become a gap without one. Other processes keep theirs.
    """
    made: Any = maps.segments.get(check_tag(tag))
    return 0 if made is None else int(made.clear())


def clear_pool(tag: str, *, least: int = 0) -> bool | None:
    """Throw away the ids of ``tag`` in the pool; None without a pool.

    Nor do ids get in that a process fetched before, or that are below ``least``. False if Redis
    or the tag's database does not answer: then the pool may still hand them out.
    """
    pool = source_in_use()
    if not pool.is_pool:
        return None
    try:
        if pool.behind.keeps_rows:
            least = max(least, next_free_id(tag))
        pool.clear([check_tag(tag)], least=least)
    except (SegmentUnavailable, ConfigurationError):
        return False
    return True


# --- rows, each in one transaction of its database -----------------------------------------


def edit_rows(alias: str, body: Callable[[], T]) -> T:
    """Run ``body`` as one transaction of the database ``alias``.

    Raises what it raises, :class:`Unstorable` and :class:`SegmentUnavailable`.
    """
    try:
        return _on_server(alias, body) if place_of(alias) is Place.SERVER else _here(alias, body)
    except SegmentUnavailable as error:
        if isinstance(error.__cause__, DataError):
            raise _unstorable(alias, error.__cause__) from error
        raise
    except DataError as error:
        raise _unstorable(alias, error) from error
    except DatabaseError as error:
        raise half_migrated(alias, error) or SegmentUnavailable(
            f"Database {alias!r} failed: {error}"
        ) from error


def _on_server(alias: str, body: Callable[[], T]) -> T:
    transactions = Transactions(
        own_connection(alias), timeout=TIMEOUT, models=MODELS, unavailable=SegmentUnavailable
    )
    return transactions.run(lambda _connection: body())


def _here(alias: str, body: Callable[[], T]) -> T:
    if missing_tables(home_connection(alias), MODELS):
        make_missing_tables(home_connection(alias), only=MODELS)
    with transaction.atomic(using=alias):
        return body()


def _unstorable(alias: str, error: Exception) -> Unstorable:
    return Unstorable(f"Database {alias!r} can't store this: {one_line(error)}")


def insert_tag_row(row: LeafAlloc, alias: str) -> None:
    """INSERT ``row``, a tag's first one in ``alias``, with that database's shard.

    In the caller's transaction. Raises :class:`TagExists`, and
    :class:`InvalidTag` if the database takes the name for another tag's.
    """
    # Locked before the tag, as a fetch does it: the shards must not change meanwhile.
    rows = rows_of(Installation, alias).filter(pk=1)
    installation = read_first(rows.select_for_update())
    if installation is not None:
        row.delta, row.remainder = installation.delta, installation.remainder
    if why := why_alike(row, alias):
        raise InvalidTag(row.pk, why)
    try:
        with transaction.atomic(using=home_of(alias)):
            insert_row(row, alias)
    except IntegrityError as error:
        raise TagExists(row.pk) from error
