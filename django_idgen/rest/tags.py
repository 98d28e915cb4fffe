"""Tags over HTTP: known, listed, made, changed, preloaded, skipped, cleared, paused.

Every request for ids checks that its tag is there, since a request for an unknown one is refused.
A tag in use by this process needs no query, and one that was found lately is trusted, so the hot
path makes none. A missing tag is never remembered: once any process makes it, it works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from django.db.models import Q, QuerySet
from django.urls import register_converter
from django.urls.converters import get_converters
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ModelViewSet

from ..core.bounded import keep_newest
from ..core.clock import SYSTEM_CLOCK
from ..core.errors import InvalidTag, SegmentUnavailable
from ..core.lease import process_label
from ..core.segment import MAX_STEP, MAX_TAG_LENGTH, check_tag
from ..core.segment_generator import SegmentAllocator
from ..db.connection import Place, place_of
from ..db.rows import is_any, rows_of
from ..models import LeafAlloc
from ..ops.tags import edits as tag_edits
from ..ops.tags.change_log import Change, record
from ..process.maps import current_settings, segments
from ..process.tags import (
    Tag,
    TagUnknown,
    is_row_of,
    known_tag,
    source_behind_pool,
    tag_databases,
)
from .base import ManagementView
from .failures import Refusal
from .serializers import Choice, IdMark, Input, Moment, PageInput, TagName, Text

VIEW = "django_idgen.view_leafalloc"
ADD = "django_idgen.add_leafalloc"
CHANGE = "django_idgen.change_leafalloc"
LONGEST_TEXT = 256
"""Characters of a description, and of a text to search for."""
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
        super().__init__(
            f"There is no tag {tag!r}. Make it in the admin, or by 'idgen_tag create'."
        )


_found_at: WeakKeyDictionary[SegmentAllocator, dict[str, float]] = WeakKeyDictionary()
"""When a tag was found: by allocator, of which new settings make a new one; then by tag."""


def is_known(tag: str) -> bool:
    """Whether ``tag`` is known to be there: this process uses it, or found it lately. No query."""
    used = segments.get(tag)
    # Without a floor this process has named the tag, but taken no id of it.
    if used is not None and getattr(used, "floor", True):
        return True
    found_at = _found().get(tag)
    return found_at is not None and SYSTEM_CLOCK.stopwatch() < found_at + TRUSTED


def is_there(tag: str) -> bool:
    """Whether ``tag`` is there.

    While no database answers, each tag that was ever found counts as there. Raises
    :class:`InvalidTag`, :class:`SegmentUnavailable` and :class:`ConfigurationError` (a router that
    fails).
    """
    if is_known(tag):
        return True
    check_tag(tag)
    try:
        exists = _exists(tag)
    except SegmentUnavailable:
        if tag in _found():
            return True
        raise
    if exists:
        keep_newest(_found(), tag, SYSTEM_CLOCK.stopwatch(), most=MOST_KNOWN)
    return exists


def check_known(tag: str) -> None:
    """Raise :class:`UnknownTag` unless there is a tag ``tag``, or requests may make tags.

    Also raises what :func:`is_there` does.
    """
    if current_settings().rest.make_tags:
        check_tag(tag)
    elif not is_there(tag):
        raise UnknownTag(tag)


def _found() -> dict[str, float]:
    return _found_at.setdefault(segments.allocator(), {})


def _exists(tag: str) -> bool:
    """Query the databases. One that fails counts only if no other one has the tag."""
    source: Any = source_behind_pool()
    if not source.keeps_rows:
        # A service keeps its own tags, and refuses unknown ones.
        return not source.is_new(tag)
    failure: SegmentUnavailable | None = None
    for alias in source.route(tag):
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
    return tag_edits.edit_rows(alias, lambda: is_any(rows_of(LeafAlloc, alias).filter(pk=tag)))


# --- lists -----------------------------------------------------------------------------


def matching_names(matches: Q, ordering: str) -> QuerySet[LeafAlloc, str] | list[str]:
    """The names of the tags that match, in order.

    One database sorts and slices. Of several, the names and sort keys of all tags that match are
    read and sorted here: a tag's key is the highest of its databases. Raises
    :class:`SegmentUnavailable` and :class:`django.db.Error`.
    """
    column, is_down = SORTED_BY[ordering.removeprefix("-")], ordering.startswith("-")
    databases = tag_databases()
    if len(databases) == 1:
        rows = LeafAlloc.objects.using(databases[0]).filter(matches)
        order = dict.fromkeys([f"-{column}" if is_down else column, "biz_tag"])
        return rows.order_by(*order).values_list("pk", flat=True)
    keys: dict[str, Any] = {}
    for alias in databases:
        rows = LeafAlloc.objects.using(alias).filter(matches)
        for name, key in rows.values_list("pk", column):
            if is_row_of(name, alias):
                keys[name] = max(key, keys.get(name, key))
    return sorted(sorted(keys), key=keys.__getitem__, reverse=is_down)


def tags_of(names: Sequence[str]) -> list[Tag]:
    """The tags of these names, in their order. Raises as :func:`matching_names`."""
    rows: dict[str, dict[str, LeafAlloc]] = {name: {} for name in names}
    for alias in tag_databases():
        found = LeafAlloc.objects.using(alias).in_bulk(names)
        for name in found.keys() & rows.keys():  # MariaDB finds "Orders" for "orders", too
            if is_row_of(name, alias):
                rows[name][alias] = found[name]
    return [Tag(name, own) for name, own in rows.items() if own]


# --- requests and answers --------------------------------------------------------------


class TagInput(Input):
    """A tag to make or to change, answered as it then is."""

    def to_representation(self, instance: Tag) -> Any:
        return TagShown(instance).data


class NewTag(TagInput):
    """A new tag."""

    tag = TagName(max_length=MAX_TAG_LENGTH)
    step = serializers.IntegerField(
        min_value=1,
        max_value=MAX_STEP,
        default=lambda: current_settings().segments.default_step,
        help_text="Ids that a process takes.",
    )
    description = Text(max_length=LONGEST_TEXT, allow_blank=True, default="")
    max_id = IdMark(default=1, help_text="Its first id; none below is ever given out.")

    def create(self, validated_data: dict[str, Any]) -> Tag:
        return tag_edits.make_tag(**validated_data)


class TagChange(TagInput):
    """Changes of a tag."""

    step = serializers.IntegerField(min_value=1, max_value=MAX_STEP, required=False)
    description = Text(max_length=LONGEST_TEXT, allow_blank=True, required=False)

    def update(self, instance: Tag, validated_data: dict[str, Any]) -> Tag:
        return tag_edits.change_tag(instance.name, **validated_data)


class Skip(Input):
    """How far to skip: either field."""

    to = IdMark(required=False, help_text="The first id that may still be given out.")
    by = serializers.IntegerField(min_value=1, max_value=1_000_000_000, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs) != 1:
            raise serializers.ValidationError({"to": ["Give either “to” or “by”."]})
        return attrs


class TagsInput(PageInput):
    """Which tags to show, and in which order."""

    tag = TagName(required=False, help_text="Only this tag.")
    prefix = Text(max_length=128, required=False, help_text="What the tag begins with.")
    search = Text(max_length=LONGEST_TEXT, required=False)
    paused = serializers.BooleanField(required=False)
    ordering = Choice(ORDERINGS, default="tag")


class RowShown(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A tag in one database."""

    max_id = IdMark()
    updated_at = Moment(source="update_time")

    class Meta:
        model = LeafAlloc
        fields = ("max_id", "step", "delta", "remainder", "updated_at")


class TagShown(serializers.Serializer):  # type: ignore[type-arg]
    """A tag."""

    tag = serializers.CharField(source="name")
    max_id = IdMark(help_text="The first id that was not given out yet.")
    step = serializers.IntegerField(source="first.step")
    description = serializers.CharField(source="first.description")
    fetch_rate = serializers.FloatField(source="first.rate", help_text="Ids a second.")
    paused = serializers.BooleanField()
    updated_at = serializers.SerializerMethodField()
    databases = serializers.SerializerMethodField()

    def get_databases(self, tag: Tag) -> list[dict[str, Any]]:
        return [{"database": alias, **RowShown(row).data} for alias, row in tag.rows.items()]

    def get_updated_at(self, tag: Tag) -> datetime:
        return max(row.update_time for row in tag.rows.values())


class Skipped(TagShown):
    """A tag that was skipped ahead, and what was cleared."""

    cleared = serializers.IntegerField(help_text="Ids that the answering process has given back.")
    pool_cleared = serializers.BooleanField(
        allow_null=True, help_text="Whether the pool was emptied; null without a pool."
    )


class Cleared(serializers.Serializer):  # type: ignore[type-arg]
    """What the answering process has given back."""

    tag = serializers.CharField()
    process = serializers.CharField()
    cleared = serializers.IntegerField()


class Preloaded(serializers.Serializer):  # type: ignore[type-arg]
    """The ids that are ready now."""

    tag = serializers.CharField()
    process = serializers.CharField()
    ready = serializers.BooleanField()
    held = serializers.IntegerField(help_text="Ids that this process holds now.")
    pooled = serializers.IntegerField(
        allow_null=True, help_text="Ids put into the pool; null without a pool."
    )


# --- views -----------------------------------------------------------------------------


class TagsView(ManagementView, ModelViewSet):  # type: ignore[type-arg]
    """The tags, new ones, and what people do to them."""

    queryset = LeafAlloc.objects.none()  # for schemas: they have no query to list by
    http_method_names = tuple(  # no tag is ever removed
        name for name in ManagementView.http_method_names if name != "delete"
    )
    lookup_url_kwarg = "tag"
    lookup_value_converter = "idgen_tag"
    inputs: ClassVar[Any] = {
        "list": TagsInput,
        "create": NewTag,
        "partial_update": TagChange,
        "skip": Skip,
    }
    answers: ClassVar[Any] = dict.fromkeys(
        ("list", "create", "retrieve", "partial_update", "pause", "resume"), TagShown
    ) | {"skip": Skipped, "preload": Preloaded, "clear": Cleared}
    permissions: ClassVar[Any] = {
        "list": VIEW,
        "create": ADD,
        "retrieve": VIEW,
        **dict.fromkeys(("partial_update", "preload", "skip", "clear", "pause", "resume"), CHANGE),
    }

    def get_queryset(self) -> Any:
        """The names of the tags to list."""
        wanted = self.read()
        return matching_names(_matches(wanted), wanted["ordering"])

    def paginate_queryset(self, queryset: Any) -> Any:
        return tags_of(super().paginate_queryset(queryset) or ())

    def get_object(self) -> Any:
        name = check_tag(self.kwargs["tag"])
        try:
            return known_tag(name)
        except TagUnknown as error:
            raise UnknownTag(name) from error

    def perform_create(self, serializer: Any) -> None:
        tag: Tag = serializer.save()
        given = serializer.validated_data
        made: dict[str, Change] = {key: (None, given[key]) for key in ("step", "max_id")}
        record(self.request.user, tag.name, "added", **made)

    def partial_update(self, *args: Any, **kwargs: Any) -> Response:
        """Change a step, which applies from the next fetch of each process on; or a description."""
        return super().partial_update(*args, **kwargs)

    def perform_update(self, serializer: Any) -> None:
        before = serializer.instance.first
        tag: Tag = serializer.save()
        given = serializer.validated_data.items()
        changes = {name: (getattr(before, name), value) for name, value in given}
        record(self.request.user, tag.name, "changed", **changes)

    @action(detail=True, methods=["post"])
    def preload(self, request: Request, tag: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Load ids ahead, in the answering process and in the pool."""
        first = self.get_object().first
        self.read()
        ready, pooled = tag_edits.preload_here(tag), tag_edits.fill_pool(first)
        held = tag_edits.held_here(tag)
        found = {"ready": ready, "held": held, "pooled": pooled}
        return Response({"tag": tag, "process": process_label(), **found})

    @action(detail=True, methods=["post"])
    def skip(self, request: Request, tag: str, **_kwargs: str) -> Response:
        """Skip ahead, never back. No later fetch gets lower ids; a pool is emptied."""
        before, wanted = self.get_object(), self.read()
        try:
            skipped = tag_edits.skip_tag(tag, most=current_settings().rest.max_skip, **wanted)
        except tag_edits.SkipRefused as error:
            if error.is_too_far:
                raise ValidationError({next(iter(wanted)): [str(error)]}) from error
            raise Refusal(409, "not_lowered", str(error)) from error
        gone = tag_edits.clear_tag(tag)
        record(request.user, tag, "skipped", max_id=(before.max_id, skipped.max_id))
        return Response({**TagShown(skipped).data, "cleared": gone.held, "pool_cleared": gone.pool})

    @action(detail=True, methods=["post"])
    def clear(self, request: Request, tag: str, **_kwargs: str) -> Response:
        """Give back the ids that the answering process holds. Other processes keep theirs."""
        self.get_object()
        self.read()
        cleared = tag_edits.clear_here(tag)
        record(request.user, tag, "cleared")
        return Response({"tag": tag, "process": process_label(), "cleared": cleared})

    @action(detail=True, methods=["post"])
    def pause(self, request: Request, tag: str, **_kwargs: str) -> Response:
        """Give out no more ids, but for those that processes hold. May be repeated."""
        return self._switch(request, tag, paused=True)

    @action(detail=True, methods=["post"])
    def resume(self, request: Request, tag: str, **_kwargs: str) -> Response:
        """Give out ids again. May be repeated."""
        return self._switch(request, tag, paused=False)

    def _switch(self, request: Request, tag: str, *, paused: bool) -> Response:
        was = self.get_object().paused
        self.read()
        changed = tag_edits.pause_tag(tag) if paused else tag_edits.resume_tag(tag)
        if was is not paused:
            record(request.user, tag, "paused" if paused else "resumed")
        return Response(TagShown(changed).data)


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
        found &= Q(paused=wanted["paused"])
    return found
