"""Tags over HTTP: listed, made, changed, loaded ahead, skipped, let go of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import Q
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ..core.segment import MAX_STEP, check_tag
from ..models import LeafAlloc
from ..ops.tags import edits as tag_edits
from ..ops.tags import supply as tag_supply
from ..ops.tags.change_log import Change, record
from ..process.handlers import current_settings
from ..process.tags import Tag, TagsElsewhere, find_tag
from ..sources.history import holder
from .management import Conflict, ManagementView, UnknownTag
from .pagination import PageInput, page_of
from .strict_input import Choice, IdNumber, Input, TagName, Text, Whole, read_body, read_query
from .tag_lists import ORDERINGS, TagList

__all__ = [
    "ClearView",
    "PauseView",
    "PreloadView",
    "ResumeView",
    "SkipView",
    "TagView",
    "TagsView",
]

VIEW = "django_idgen.view_leafalloc"
ADD = "django_idgen.add_leafalloc"
CHANGE = "django_idgen.change_leafalloc"
LONGEST_DESCRIPTION = 256
LONGEST_SEARCH = 256


class TagsInput(PageInput):
    """Which tags to show, and in which order."""

    tag = TagName(required=False, help_text="This very tag.")
    prefix = Text(max_length=128, required=False, help_text="What the tag begins with.")
    search = Text(
        max_length=LONGEST_SEARCH,
        required=False,
        help_text="A text in the tag or in its description, in either case.",
    )
    paused = Choice(["true", "false"], required=False, help_text="Whether somebody has paused it.")
    ordering = Choice(ORDERINGS, default="tag", help_text="What to sort by; “-” reverses.")


class NewTagInput(Input):
    """A tag that is to be made."""

    tag = TagName(help_text="Its name: 1 to 128 printable characters.")
    step = Whole(
        least=1, most=MAX_STEP, required=False, help_text="Ids that a process takes at a time."
    )
    description = Text(
        max_length=LONGEST_DESCRIPTION, allow_blank=True, default="", help_text="What it is for."
    )
    max_id = IdNumber(default=1, help_text="Its first id; none below is ever given out.")


class TagInput(Input):
    """What can be changed of a tag."""

    step = Whole(
        least=1,
        most=MAX_STEP,
        required=False,
        help_text="Ids that a process takes at a time, from its next fetch on.",
    )
    description = Text(
        max_length=LONGEST_DESCRIPTION,
        allow_blank=True,
        required=False,
        help_text="What it is for.",
    )


class SkipInput(Input):
    """How far to skip: one of the two."""

    to = IdNumber(required=False, help_text="The first id that may still be given out.")
    by = Whole(least=1, most=1_000_000_000, required=False, help_text="How many ids to pass over.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs) != 1:
            raise serializers.ValidationError({"to": ["Give either “to” or “by”."]})
        return attrs


class NoInput(Input):
    """A body without fields."""


class TagsView(ManagementView):
    """The tags, and new ones."""

    permissions: ClassVar[Mapping[str, str]] = {"GET": VIEW, "POST": ADD}

    def get(self, request: Request, **_kwargs: str) -> Response:
        wanted = read_query(request, TagsInput)
        return Response(page_of(request, wanted, TagList(_fits(wanted), wanted["ordering"]), shown))

    def post(self, request: Request, **_kwargs: str) -> Response:
        wanted = read_body(request, NewTagInput)
        step = wanted.get("step", current_settings().segments.default_step)
        try:
            tag = tag_edits.make_tag(
                wanted["tag"],
                step=step,
                description=wanted["description"],
                max_id=wanted["max_id"],
            )
        except tag_edits.TagExists as error:
            raise Conflict(str(error), code="exists") from error
        except TagsElsewhere as error:
            raise Conflict(str(error), code="tags_elsewhere") from error
        except tag_edits.Unstorable as error:
            raise ValidationError({"description": [str(error)]}) from error
        made: dict[str, Change] = {"step": (None, step), "max_id": (None, wanted["max_id"])}
        record(request.user, tag.name, "added", **made)
        return Response(shown(tag), status=201)


class OneTagView(ManagementView):
    """A view of one tag, which its URL names."""

    def found(self, name: str) -> Tag:
        tag = find_tag(check_tag(name))
        if tag is None:
            raise UnknownTag(name)
        return tag


class TagView(OneTagView):
    """One tag."""

    permissions: ClassVar[Mapping[str, str]] = {"GET": VIEW, "PATCH": CHANGE}

    def get(self, request: Request, tag: str, **_kwargs: str) -> Response:
        read_query(request, NoInput)
        return Response(shown(self.found(tag)))

    def patch(self, request: Request, tag: str, **_kwargs: str) -> Response:
        before = self.found(tag).first
        wanted = read_body(request, TagInput)
        try:
            changed = tag_edits.change_tag(tag, **wanted)
        except tag_edits.Unstorable as error:
            raise ValidationError({"description": [str(error)]}) from error
        changes = {name: (getattr(before, name), value) for name, value in wanted.items()}
        record(request.user, tag, "changed", **changes)
        return Response(shown(changed))


class PreloadView(OneTagView):
    """Load ahead what is to be ready, here and in the pool."""

    permissions: ClassVar[Mapping[str, str]] = {"POST": CHANGE}

    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        found = self.found(tag)
        read_body(request, NoInput)
        ready = tag_supply.load_ahead(tag)
        pooled = tag_supply.fill_pool(found.first)
        return Response(
            {
                "tag": tag,
                "process": holder(),
                "ready": ready,
                "held": tag_supply.held_here(tag),
                "pooled": pooled,
            }
        )


class SkipView(OneTagView):
    """Skip ahead, never back."""

    permissions: ClassVar[Mapping[str, str]] = {"POST": CHANGE}

    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        before = self.found(tag)
        wanted = read_body(request, SkipInput)
        most = current_settings().rest.max_skip
        try:
            skipped = tag_edits.skip_tag(tag, most=most, **wanted)
        except tag_edits.SkipRefused as error:
            if error.is_too_far:
                raise ValidationError({next(iter(wanted)): [str(error)]}) from error
            raise Conflict(str(error), code="not_lowered") from error
        gone = tag_supply.let_go(tag)
        record(request.user, tag, "skipped", max_id=(before.max_id, skipped.max_id))
        return Response({**shown(skipped), "cleared": gone.held, "pool_cleared": gone.pool})


class ClearView(OneTagView):
    """Give back what this process holds of the tag; with several, the others keep theirs."""

    permissions: ClassVar[Mapping[str, str]] = {"POST": CHANGE}

    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        self.found(tag)
        read_body(request, NoInput)
        cleared = tag_supply.clear_here(tag)
        record(request.user, tag, "cleared")
        return Response({"tag": tag, "process": holder(), "cleared": cleared})


class PauseView(OneTagView):
    """Have nobody be given more ids of the tag."""

    permissions: ClassVar[Mapping[str, str]] = {"POST": CHANGE}

    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        was = self.found(tag).paused
        read_body(request, NoInput)
        paused = tag_edits.pause_tag(tag)
        if not was:
            record(request.user, tag, "paused")
        return Response(shown(paused))


class ResumeView(OneTagView):
    """Have ids of the tag be given out again."""

    permissions: ClassVar[Mapping[str, str]] = {"POST": CHANGE}

    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:
        was = self.found(tag).paused
        read_body(request, NoInput)
        resumed = tag_edits.resume_tag(tag)
        if was:
            record(request.user, tag, "resumed")
        return Response(shown(resumed))


def shown(tag: Tag) -> dict[str, Any]:
    """A tag as JSON."""
    first = tag.first
    return {
        "tag": tag.name,
        "max_id": str(tag.max_id),
        "step": first.step,
        "description": first.description or "",
        "fetch_rate": first.rate,
        "paused": tag.paused,
        "updated_at": max(row.update_time for row in tag.rows.values()),
        "databases": [_row_shown(alias, row) for alias, row in tag.rows.items()],
    }


def _row_shown(alias: str, row: LeafAlloc) -> dict[str, Any]:
    return {
        "database": alias,
        "max_id": str(row.max_id),
        "step": row.step,
        "delta": row.delta,
        "remainder": row.remainder,
        "updated_at": row.update_time,
    }


def _fits(wanted: Mapping[str, Any]) -> Q:
    fits = Q()
    if "tag" in wanted:
        fits &= Q(pk=wanted["tag"])
    if "prefix" in wanted:
        fits &= Q(pk__startswith=wanted["prefix"])
    if "search" in wanted:
        text = wanted["search"]
        fits &= Q(pk__icontains=text) | Q(description__icontains=text)
    if "paused" in wanted:
        fits &= Q(paused=wanted["paused"] == "true")
    return fits
