"""The forms of tags: what people may write, and that nothing they saw earlier is written back."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...core.segment import MAX_ID
from ...models import LeafAlloc

if TYPE_CHECKING:
    TagForm = forms.ModelForm[models.Model]
    StepsFormSet = forms.BaseModelFormSet[models.Model, "StepForm"]
else:
    TagForm = forms.ModelForm
    StepsFormSet = forms.BaseModelFormSet

__all__ = ["LeafAllocForm", "SkipForm", "StepForm", "StepFormSet"]


def _step_field(**kwargs: Any) -> Any:
    """A step that comes with what the page showed: one that is not edited is not written."""
    return LeafAlloc._meta.get_field("step").formfield(show_hidden_initial=True, **kwargs)


class StepMixin(TagForm):
    """Refuses to overwrite a step that somebody else changed after the page was opened."""

    needs_seen = False
    """Whether the browser has to say which step the page showed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before = cast("LeafAlloc", copy(self.instance))
        """The tag as it was when the request came: validation changes the instance."""

    def clean_step(self) -> int:
        wanted: int = self.cleaned_data["step"]
        stored = self.before.step
        if self.instance._state.adding or wanted == stored or "step" not in self.changed_data:
            return wanted
        seen = self._seen_step()
        if seen == stored or (seen is None and not self.needs_seen):
            return wanted
        if seen is None:
            text = _("The page did not say which step it showed. Open it anew.")
            raise ValidationError(text, code="unseen")
        raise ValidationError(
            _(
                "Somebody else changed this step from %(seen)d to %(stored)d meanwhile; it was "
                "left so. Open the page anew to change it to %(wanted)d."
            ),
            code="overtaken",
            params={"seen": seen, "stored": stored, "wanted": wanted},
        )

    def _seen_step(self) -> int | None:
        """The step that the page showed; None if the browser doesn't say."""
        shown = str(self.data.get(self.add_initial_prefix("step"), ""))
        return int(shown) if shown.isdecimal() and len(shown) < 20 else None


class StepForm(StepMixin):
    """One row of the list: its step, and nothing else."""

    # Or the steps of all rows would be written back, edited or not.
    needs_seen = True
    step = _step_field()

    class Meta:
        model = LeafAlloc
        fields = ("step",)


class StepFormSet(StepsFormSet):
    """The steps of one page; above them all stands which tag has a wrong one."""

    def clean(self) -> None:
        super().clean()
        wrong = [
            ValidationError(
                _("%(tag)s: %(reason)s"),
                code="wrong_step",
                params={"tag": form.instance.pk, "reason": " ".join(reasons)},
            )
            for form in self.forms
            if (reasons := [str(reason) for each in form.errors.values() for reason in each])
        ]
        if wrong:
            raise ValidationError(wrong)


class LeafAllocForm(StepMixin):
    """A tag. Of one that is there, the page shows ``max_id`` and leads to its skip."""

    step = _step_field()

    class Meta:
        model = LeafAlloc
        fields = ("biz_tag", "max_id", "step", "description")
        help_texts: ClassVar[dict[str, Any]] = {
            "max_id": gettext_lazy(
                "The first id that is given out. Later on it can be raised, never lowered."
            )
        }


class SkipForm(forms.Form):
    """How far tags are to skip ahead: by so many ids, or to an id."""

    BY, TO = "by", "to"

    how = forms.ChoiceField(
        label=gettext_lazy("Skip"),
        choices=(
            (BY, gettext_lazy("by so many ids")),
            (TO, gettext_lazy("to this id, the next one given out")),
        ),
        widget=forms.RadioSelect,
        initial=BY,
    )
    number = forms.IntegerField(
        label=gettext_lazy("Number"),
        widget=forms.TextInput(
            attrs={"inputmode": "numeric", "autocomplete": "off", "class": "idgen-input"}
        ),
        error_messages={
            "required": gettext_lazy("Say how far to skip."),
            "invalid": gettext_lazy("Enter a whole number, in digits alone."),
        },
    )

    def clean_number(self) -> int:
        number: int = self.cleaned_data["number"]
        if number < 1:
            text = _("Enter a number of 1 or more: a tag never goes back.")
            raise ValidationError(text, code="not_ahead")
        if number > MAX_ID:
            text = _("Ids end at %(end)d (2⁶³ − 1): nothing can skip past that.")
            raise ValidationError(text, code="past_the_end", params={"end": MAX_ID})
        return number

    def target(self, stands: int) -> int:
        """Where a tag that stands at ``stands`` would go on: below, perhaps, or past the end."""
        number: int = self.cleaned_data["number"]
        return number if self.cleaned_data["how"] == self.TO else stands + number
