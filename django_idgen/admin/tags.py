"""Tags and steps.

Nothing here may make an id come again. So ``max_id`` only goes up, in one statement
that knows nothing of what the page showed; and no page deletes a tag, which would start
at 1 again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import models
from django.http import HttpRequest, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import DEFAULT_STEP, SettingsError, read_settings
from ..core.errors import IdgenError
from ..core.segment import MAX_ID
from ..models import LeafAlloc, SegmentHistory
from ..tags import edits as tag_edits
from ..tags import rows as tag_rows
from ..tags import supply as tag_supply
from .base import GrantsAdmin, ReadOnlyAdmin, database_of

if TYPE_CHECKING:
    TagForm = forms.ModelForm[models.Model]
else:
    TagForm = forms.ModelForm

__all__ = ["LeafAllocAdmin", "SegmentHistoryAdmin"]


class LeafAllocForm(TagForm):
    """Refuses a lower ``max_id``."""

    # With what the page showed sent along, a tag that moved on meanwhile is no change.
    max_id = LeafAlloc._meta.get_field("max_id").formfield(
        show_hidden_initial=True,
        help_text=gettext_lazy(
            "The first id that no process was given yet. Raise it to skip ahead, in all databases "
            "of the tag; it can't be lowered. Other processes use up what they hold already."
        ),
    )

    class Meta:
        model = LeafAlloc
        fields = ("biz_tag", "max_id", "step", "description")

    def clean_max_id(self) -> int:
        wanted: int = self.cleaned_data["max_id"]
        if self.instance._state.adding:
            return wanted
        stored = LeafAlloc.objects.filter(pk=self.instance.pk).values_list("max_id", flat=True)
        current = stored.first()
        if current is None or wanted >= current:
            return wanted
        if "max_id" not in self.changed_data:
            return current
        raise ValidationError(
            _(
                "The next free id can't be lowered from %(current)d to %(wanted)d: the ids "
                "between were handed out already and would come again."
            ),
            code="lowered",
            params={"current": current, "wanted": wanted},
        )


FROM_FETCHES = ("delta", "remainder", "largest_step", "server", "rate", "update_time")
"""Fields that only fetches, and ``idgen_grow``, write."""


@admin.register(LeafAlloc)
class LeafAllocAdmin(GrantsAdmin):
    """Tags. On SQLite the rows mirror a file, which takes a step or a higher ``max_id`` over."""

    form = LeafAllocForm
    list_display = ("biz_tag", "max_id", "step", "rate", "description", "update_time")
    search_fields = ("biz_tag", "description")
    readonly_fields = FROM_FETCHES
    fields = ("biz_tag", "max_id", "step", "description", *FROM_FETCHES)

    def get_fields(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        shown = super().get_fields(request, obj)
        # A tag that is being added was never changed.
        return shown if obj is not None else [name for name in shown if name not in FROM_FETCHES]

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        return {"step": _default_step(), **super().get_changeform_initial_data(request)}

    def get_readonly_fields(
        self, request: HttpRequest, obj: models.Model | None = None
    ) -> list[str]:
        fixed = [*super().get_readonly_fields(request, obj)]
        if obj is not None:
            fixed.append("biz_tag")
        return fixed

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except IdgenError as error:
            # A database that is away, or somebody who was quicker.
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def save_model(
        self,
        request: HttpRequest,
        obj: models.Model,
        form: Any,
        change: bool,
    ) -> None:
        if not change:
            # Never an UPDATE: the tag may have been made, and used, in this moment.
            tag_edits.insert_tag_row(cast("LeafAlloc", obj), database_of(LeafAlloc))
            return
        changed: dict[str, Any] = {
            name: form.cleaned_data[name]
            for name in form.changed_data
            if name in {"step", "description", "max_id"}
        }
        if "max_id" in changed:
            # First of all, since it is a transaction of its own: in this one, nothing that
            # it would wait for is changed yet.
            self._skip(request, obj.pk, changed.pop("max_id"))
        if changed:
            tag_edits.change_row(database_of(LeafAlloc), obj.pk, **changed)

    def _skip(self, request: HttpRequest, tag: str, to: int) -> None:
        """In all databases of the tag; nothing below is left here, or in the pool."""
        if not tag_rows.is_fetched_from(tag, database_of(LeafAlloc)):
            # Somebody else's, such as another site's that shares this admin.
            tag_edits.change_row(database_of(LeafAlloc), tag, max_id=to)
            return
        tag_edits.skip_tag(tag, to=to, most=MAX_ID)
        if tag_supply.let_go(tag).pool is False:
            text = _("The pool of “%(tag)s” can't be emptied: lower ids may come out of it yet.")
            self.message_user(request, text % {"tag": tag}, messages.WARNING)


@admin.register(SegmentHistory)
class SegmentHistoryAdmin(ReadOnlyAdmin):
    """Who was given which range, where history is switched on."""

    list_display = ("tag", "start", "stop", "delta", "holder", "taken_at")
    search_fields = ("=tag", "holder")
    # Of a table this long, counting is the slow part.
    show_full_result_count = False


def _default_step() -> int:
    try:
        return read_settings().segments.default_step
    except SettingsError:
        return DEFAULT_STEP
