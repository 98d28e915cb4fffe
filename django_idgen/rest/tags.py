"""Tags over HTTP: known, listed, made, changed, preloaded, skipped, cleared, paused.

Every request for ids checks that its tag is there, since a request for an unknown one is refused.
A tag in use by this process needs no query, and one that was found lately is trusted, so the hot
path makes none. A missing tag is never remembered: once any process makes it, it works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from django.db import DatabaseError
from django.db.models import Q, QuerySet
from django.urls import register_converter
from django.urls.converters import get_converters
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ..core.bounded import keep_newest
from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import InvalidTag, SegmentUnavailable
from ..core.lease import process_label
from ..core.segment import MAX_STEP, check_tag
from ..db.connection import Place, place_of
from ..db.rows import is_any, rows_of
from ..models import LeafAlloc
from ..ops.tags import edits as tag_edits
from ..ops.tags.change_log import Change, record
from ..process.maps import current_settings, segments
from ..process.tags import (
    Tag,
    find_tag,
    is_row_of,
    source_behind_pool,
    tag_databases,
)
from .base import ManagementView
from .failures import Refusal
from .serializers import (
    Answer,
    Choice,
    IdNumber,
    Input,
    Moment,
    NoInput,
    Operation,
    PageInput,
    TagName,
    Text,
    Whole,
    page_of,
    pages_of,
)

T = TypeVar("T")

VIEW = "django_idgen.view_leafalloc"
ADD = "django_idgen.add_leafalloc"
CHANGE = "django_idgen.change_leafalloc"
LONGEST_TEXT = 256
"""Characters of a description, and of a text to search for."""
CLEARED = "Ids that the answering process held, and has given back."
TRUSTED = 60.0
"""Seconds for which a tag, once found, is taken to be there. This app removes none."""
MOST_KNOWN = 10_000
"""Tags remembered; the oldest go first."""
SORTED_BY = {
    "tag": "biz_tag",
    "max_id": "max_id",
    "step": "step",
    "fetch_rate": "rate",
    "updated_at": "update_time",
}
ORDERINGS = [f"{sign}{name}" for name in SORTED_BY for sign in ("", "-")]


class TagConverter:
    """A segment tag, which may have slashes. An invalid tag is a 404."""

    regex = "[^\x00]+"

    def to_python(self, value: str) -> str:
        try:
            return check_tag(value)
        except InvalidTag as error:
            raise ValueError(str(error)) from error

    def to_url(self, value: str) -> str:
        return check_tag(value)


if "idgen_tag" not in get_converters():
    register_converter(TagConverter, "idgen_tag")


# --- known tags ------------------------------------------------------------------------


class UnknownTag(NotFound):
    """404: there is no such tag, and the settings don't let a request make it."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(f"There is no tag {tag!r}. A user who may add tags has to make it first.")


class KnownTags:
    """Remembers the tags that were found. Thread-safe.

    ``exists`` queries the databases. It raises :class:`SegmentUnavailable` if none answers.
    """

    def __init__(self, exists: Callable[[str], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        self._exists = exists
        self._now = clock.stopwatch
        self._found_at: dict[str, float] = {}
        self._allocator: object = None

    def has_lately(self, tag: str) -> bool:
        """Whether ``tag`` is known to be there; makes no query."""
        used = segments.get(tag)
        # Without a floor this process has named the tag, but taken no id of it.
        if used is not None and getattr(used, "floor", True):
            return True
        found_at = self._found_at.get(tag)
        return found_at is not None and self._now() < found_at + TRUSTED and self._is_current()

    def has(self, tag: str) -> bool:
        """Whether ``tag`` is there.

        While no database answers, each tag that was ever found counts as there. Raises
        :class:`InvalidTag`, :class:`SegmentUnavailable` and :class:`ConfigurationError` (a router
        that fails).
        """
        if self.has_lately(tag):
            return True
        check_tag(tag)
        try:
            found = self._exists(tag)
        except SegmentUnavailable:
            if tag in self._found_at and self._is_current():
                return True
            raise
        if found:
            if not self._is_current():
                self._found_at, self._allocator = {}, segments.allocator()
            keep_newest(self._found_at, tag, self._now(), most=MOST_KNOWN)
        return found

    def clear(self) -> None:
        self._found_at = {}

    def _is_current(self) -> bool:
        """Whether the remembered tags were found with the current settings."""
        return self._allocator is segments.allocator()


def check_known(tag: str) -> None:
    """Raise :class:`UnknownTag` unless there is a tag ``tag``, or requests may make tags.

    Also raises what :meth:`KnownTags.has` does.
    """
    if current_settings().rest.make_tags:
        check_tag(tag)
    elif not KNOWN_TAGS.has(tag):
        raise UnknownTag(tag)


def _exists(tag: str) -> bool:
    source: Any = source_behind_pool()
    if source.keeps_rows:
        return _is_in_one_of(source.route(tag), tag)
    # A service keeps its own tags, and refuses unknown ones.
    return not source.is_new(tag)


def _is_in_one_of(aliases: tuple[str, ...], tag: str) -> bool:
    failure: SegmentUnavailable | None = None
    for alias in aliases:
        try:
            if _is_in(alias, tag):
                return True
        except SegmentUnavailable as error:
            failure = error
    if failure is not None:
        raise failure
    return False


def _is_in(alias: str, tag: str) -> bool:
    if place_of(alias) is Place.FORBIDDEN:
        return False  # a test that may not use this database has no rows there
    return tag_edits.edit_rows(alias, partial(_is_row, alias, tag))


def _is_row(alias: str, tag: str) -> bool:
    return is_any(rows_of(LeafAlloc, alias).filter(pk=tag))


KNOWN_TAGS = KnownTags(_exists)


# --- lists -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TagList:
    """The tags that match, in order. Queries the databases at each call.

    One database sorts and slices. With several, the names and sort keys of all tags that match
    are read and sorted here.
    """

    matches: Q
    ordering: str = "tag"

    def __len__(self) -> int:
        """Raises :class:`SegmentUnavailable`."""
        databases = tag_databases()
        if len(databases) == 1:
            return _query(databases[0], lambda rows: rows.filter(self.matches).count())
        return len(self._keys(databases))

    def __getitem__(self, part: slice) -> Sequence[Tag]:
        """Raises :class:`SegmentUnavailable`."""
        databases = tag_databases()
        names = self._names(databases, part)
        rows = (
            {alias: _query(alias, lambda rows: rows.in_bulk(names)) for alias in databases}
            if names
            else {}
        )
        tags = []
        for name in names:
            own = {
                alias: found[name]
                for alias, found in rows.items()
                if name in found and is_row_of(name, alias)
            }
            if own:
                tags.append(Tag(name, own))
        return tags

    def _names(self, databases: Sequence[str], part: slice) -> list[str]:
        if len(databases) == 1:
            order = [f"{self._sign}{self._column}", "biz_tag"]
            return _query(
                databases[0],
                lambda rows: list(
                    rows.filter(self.matches)
                    .order_by(*dict.fromkeys(order))
                    .values_list("pk", flat=True)[part]
                ),
            )
        keys = self._keys(databases)
        names = sorted(keys)
        names.sort(key=lambda name: keys[name], reverse=bool(self._sign))
        return names[part]

    def _keys(self, databases: Sequence[str]) -> dict[str, Any]:
        """The sort key of each tag: the highest of its databases."""
        keys: dict[str, Any] = {}
        for alias in databases:
            pairs = _query(
                alias, lambda rows: list(rows.filter(self.matches).values_list("pk", self._column))
            )
            for name, value in pairs:
                if is_row_of(name, alias):
                    keys[name] = max(value, keys.get(name, value))
        return keys

    @property
    def _sign(self) -> str:
        return "-" if self.ordering.startswith("-") else ""

    @property
    def _column(self) -> str:
        return SORTED_BY[self.ordering.removeprefix("-")]


def _query(alias: str, query: Callable[[QuerySet[LeafAlloc]], T]) -> T:
    try:
        return query(LeafAlloc.objects.using(alias))
    except DatabaseError as error:
        raise SegmentUnavailable(
            f"Database {alias!r} can't be queried for tags: {error}"
        ) from error


# --- requests and answers --------------------------------------------------------------


class TagsInput(PageInput):
    """Which tags to show, and in which order."""

    tag = TagName(required=False, help_text="Only this tag.")
    prefix = Text(max_length=128, required=False, help_text="What the tag begins with.")
    search = Text(
        max_length=LONGEST_TEXT,
        required=False,
        help_text="A text in the tag or in its description, in either case.",
    )
    paused = Choice(["true", "false"], required=False, help_text="Whether it is paused.")
    ordering = Choice(ORDERINGS, default="tag", help_text="What to sort by; “-” reverses.")


class NewTagInput(Input):
    """A new tag."""

    example: ClassVar[Any] = {"tag": "orders", "step": 1000, "description": "Orders of the shop"}

    tag = TagName(help_text="Its name: 1 to 128 printable characters.")
    step = Whole(
        least=1, most=MAX_STEP, required=False, help_text="Ids that a process takes at a time."
    )
    description = Text(
        max_length=LONGEST_TEXT, allow_blank=True, default="", help_text="What it is for."
    )
    max_id = IdNumber(default=1, help_text="Its first id; none below is ever given out.")


class TagInput(Input):
    """Changes of a tag."""

    example: ClassVar[Any] = {"step": 2000}

    step = Whole(
        least=1,
        most=MAX_STEP,
        required=False,
        help_text="Ids that a process takes at a time, from its next fetch on.",
    )
    description = Text(
        max_length=LONGEST_TEXT,
        allow_blank=True,
        required=False,
        help_text="What it is for.",
    )


class SkipInput(Input):
    """How far to skip: either field."""

    just_one = True
    example: ClassVar[Any] = {"by": 1000}

    to = IdNumber(required=False, help_text="The first id that may still be given out.")
    by = Whole(least=1, most=1_000_000_000, required=False, help_text="How many ids to pass over.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs) != 1:
            raise serializers.ValidationError({"to": ["Give either “to” or “by”."]})
        return attrs


class RowShown(Answer):
    """A tag in one database."""

    database = serializers.CharField()
    max_id = IdNumber()
    step = serializers.IntegerField()
    delta = serializers.IntegerField()
    remainder = serializers.IntegerField()
    updated_at = Moment()


class TagShown(Answer):
    """A tag."""

    example: ClassVar[Any] = {
        "tag": "orders",
        "max_id": "5001",
        "step": 1000,
        "description": "Orders of the shop",
        "fetch_rate": 1.5,
        "paused": False,
        "updated_at": "2025-06-01T12:00:00Z",
        "databases": [
            {
                "database": "default",
                "max_id": "5001",
                "step": 1000,
                "delta": 1,
                "remainder": 0,
                "updated_at": "2025-06-01T12:00:00Z",
            }
        ],
    }
    tag = TagName()
    max_id = IdNumber(help_text="The first id that was not given out yet.")
    step = serializers.IntegerField(help_text="Ids that a process takes at a time.")
    description = serializers.CharField()
    fetch_rate = serializers.FloatField(
        help_text="Ids a second that processes fetched, as last measured."
    )
    paused = serializers.BooleanField(help_text="Whether no process gets more of its ids.")
    updated_at = Moment()
    databases = RowShown(many=True)


class Skipped(TagShown):
    """A tag that was skipped ahead, and what was cleared."""

    example: ClassVar[Any] = {**TagShown.example, "cleared": 950, "pool_cleared": None}
    cleared = serializers.IntegerField(help_text=CLEARED)
    pool_cleared = serializers.BooleanField(
        allow_null=True, help_text="Whether the pool was emptied; null without a pool."
    )


class Cleared(Answer):
    """What the answering process has cleared."""

    example: ClassVar[Any] = {"tag": "orders", "process": "web-1:17", "cleared": 950}
    tag = TagName()
    process = serializers.CharField()
    cleared = serializers.IntegerField(help_text=CLEARED)


class Preloaded(Answer):
    """The ids that are ready now."""

    example: ClassVar[Any] = {
        "tag": "orders",
        "process": "web-1:17",
        "ready": True,
        "held": 1900,
        "pooled": None,
    }
    tag = TagName()
    process = serializers.CharField()
    ready = serializers.BooleanField()
    held = serializers.IntegerField(help_text="Ids that this process holds now.")
    pooled = serializers.IntegerField(
        allow_null=True, help_text="Ids put into the pool; null without a pool."
    )


# --- views -----------------------------------------------------------------------------


class TagsView(ManagementView):
    """The tags, and new ones."""

    @Operation(
        name="list_tags",
        summary="Find tags",
        permission=VIEW,
        query=TagsInput,
        answer=pages_of(TagShown),
    )
    def get(self, request: Request, **_kwargs: str) -> Response:
        wanted = self.read()
        listed = TagList(_matches(wanted), wanted["ordering"])
        return self.respond(page_of(request, wanted, listed, document_of))

    @Operation(
        name="make_tag",
        summary="Make a tag",
        permission=ADD,
        body=NewTagInput,
        answer=TagShown,
        status=201,
        errors=(409,),
    )
    def post(self, request: Request, **_kwargs: str) -> Response:
        wanted = self.read()
        step = wanted.get("step", current_settings().segments.default_step)
        tag = tag_edits.make_tag(
            wanted["tag"],
            step=step,
            description=wanted["description"],
            max_id=wanted["max_id"],
        )
        made: dict[str, Change] = {"step": (None, step), "max_id": (None, wanted["max_id"])}
        record(request.user, tag.name, "added", **made)
        return self.respond(document_of(tag))


class OneTagView(ManagementView):
    """A view of one tag, which its URL names."""

    def found(self, name: str) -> Tag:
        tag = find_tag(check_tag(name))
        if tag is None:
            raise UnknownTag(name)
        return tag


class TagView(OneTagView):
    """One tag."""

    @Operation(
        name="read_tag",
        summary="Read a tag",
        permission=VIEW,
        query=NoInput,
        answer=TagShown,
    )
    def get(self, request: Request, tag: str, **_kwargs: str) -> Response:  # noqa: ARG002
        self.read()
        return self.respond(document_of(self.found(tag)))

    @Operation(
        name="change_tag",
        summary="Change a tag's step or description",
        description="A step applies from the next fetch of each process on.",
        permission=CHANGE,
        body=TagInput,
        answer=TagShown,
        errors=(409,),
    )
    def patch(self, request: Request, tag: str, **_kwargs: str) -> Response:
        before = self.found(tag).first
        wanted = self.read()
        changed = tag_edits.change_tag(tag, **wanted)
        changes = {name: (getattr(before, name), value) for name, value in wanted.items()}
        record(request.user, tag, "changed", **changes)
        return self.respond(document_of(changed))


class PreloadView(OneTagView):
    """Load ids ahead, here and in the pool."""

    @Operation(
        name="preload_tag",
        summary="Load ids ahead, in the answering process and in the pool",
        permission=CHANGE,
        body=NoInput,
        answer=Preloaded,
        errors=(409,),
    )
    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:  # noqa: ARG002
        found = self.found(tag)
        self.read()
        ready = tag_edits.preload_here(tag)
        pooled = tag_edits.fill_pool(found.first)
        return self.respond(
            {
                "tag": tag,
                "process": process_label(),
                "ready": ready,
                "held": tag_edits.held_here(tag),
                "pooled": pooled,
            }
        )


class SkipView(OneTagView):
    """Skip ahead, never back."""

    @Operation(
        name="skip_tag",
        summary="Skip ahead, never back",
        description="No later fetch gets lower ids. The answering process gives its ids back, "
        "other processes use theirs up; a pool is emptied. The setting max_skip limits a skip.",
        permission=CHANGE,
        body=SkipInput,
        answer=Skipped,
        errors=(409,),
    )
    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        before = self.found(tag)
        wanted = self.read()
        most = current_settings().rest.max_skip
        try:
            skipped = tag_edits.skip_tag(tag, most=most, **wanted)
        except tag_edits.SkipRefused as error:
            if error.is_too_far:
                raise ValidationError({next(iter(wanted)): [str(error)]}) from error
            raise Refusal(409, "not_lowered", str(error)) from error
        gone = tag_edits.clear_tag(tag)
        record(request.user, tag, "skipped", max_id=(before.max_id, skipped.max_id))
        return self.respond(
            {**document_of(skipped), "cleared": gone.held, "pool_cleared": gone.pool}
        )


class ClearView(OneTagView):
    """Give back the ids of the tag that this process holds; other processes keep theirs."""

    @Operation(
        name="clear_tag",
        summary="Give back the ids of a tag that the answering process holds",
        description="They go into the pool, or are a gap. Other processes keep theirs.",
        permission=CHANGE,
        body=NoInput,
        answer=Cleared,
        errors=(409,),
    )
    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        self.found(tag)
        self.read()
        cleared = tag_edits.clear_here(tag)
        record(request.user, tag, "cleared")
        return self.respond({"tag": tag, "process": process_label(), "cleared": cleared})


class SwitchView(OneTagView):
    """Pause or resume a tag."""

    def switch(self, request: Request, tag: str, *, paused: bool) -> Response:
        """Pause or resume ``tag``, and record it if that is a change."""
        was = self.found(tag).paused
        self.read()
        changed = tag_edits.pause_tag(tag) if paused else tag_edits.resume_tag(tag)
        if was is not paused:
            record(request.user, tag, "paused" if paused else "resumed")
        return self.respond(document_of(changed))


class PauseView(SwitchView):
    """Give out no more ids of the tag."""

    @Operation(
        name="pause_tag",
        summary="Give out no more ids of a tag",
        description="Processes use up the ids that they hold. Then requests for ids get 409 with "
        "the code `paused`. The tag's pool is cleared. May be repeated.",
        permission=CHANGE,
        body=NoInput,
        answer=TagShown,
        errors=(409,),
        examples={200: {**TagShown.example, "paused": True}},
    )
    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        return self.switch(request, tag, paused=True)


class ResumeView(SwitchView):
    """Give out ids of the tag again."""

    @Operation(
        name="resume_tag",
        summary="Give out ids of a tag again",
        description="From the next request on. May be repeated.",
        permission=CHANGE,
        body=NoInput,
        answer=TagShown,
        errors=(409,),
    )
    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        return self.switch(request, tag, paused=False)


def document_of(tag: Tag) -> dict[str, Any]:
    """A tag as :class:`TagShown` writes it."""
    first = tag.first
    return {
        "tag": tag.name,
        "max_id": tag.max_id,
        "step": first.step,
        "description": first.description or "",
        "fetch_rate": first.rate,
        "paused": tag.paused,
        "updated_at": max(row.update_time for row in tag.rows.values()),
        "databases": [
            {
                "database": alias,
                "max_id": row.max_id,
                "step": row.step,
                "delta": row.delta,
                "remainder": row.remainder,
                "updated_at": row.update_time,
            }
            for alias, row in tag.rows.items()
        ],
    }


def _matches(wanted: Mapping[str, Any]) -> Q:
    found = Q()
    if "tag" in wanted:
        found &= Q(pk=wanted["tag"])
    if "prefix" in wanted:
        found &= Q(pk__startswith=wanted["prefix"])
    if "search" in wanted:
        text = wanted["search"]
        found &= Q(pk__icontains=text) | Q(description__icontains=text)
    if "paused" in wanted:
        found &= Q(paused=wanted["paused"] == "true")
    return found
