"""Steps edited in the list: each row on its own, and none that somebody else changed."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core.errors import IdgenError
from . import tag_changes
from .error_words import error_words
from .tag_forms import StepForm, StepFormSet
from .tag_outcomes import Outcomes

__all__ = ["save_steps"]


def save_steps(request: HttpRequest, formset: StepFormSet) -> Outcomes:
    """Change the steps that were edited in ``formset``, which is valid."""
    outcomes = Outcomes()
    changed = sum(_save(request, form, outcomes) for form in formset.forms if form.has_changed())
    if changed:
        text = ngettext(
            "The step of %(count)d tag was changed. It counts from the next fetch on.",
            "The steps of %(count)d tags were changed. They count from the next fetch on.",
            changed,
        )
        outcomes.good(text % {"count": changed})
    return outcomes


def _save(request: HttpRequest, form: StepForm, outcomes: Outcomes) -> bool:
    tag, wanted = form.instance.pk, form.cleaned_data["step"]
    try:
        tag_changes.change_step(request, tag, seen=form.before.step, to=wanted)
    except IdgenError as error:
        text = _("The step of “%(tag)s” was not changed to %(wanted)d. %(reason)s")
        outcomes.bad(text % {"tag": tag, "wanted": wanted, "reason": error_words(error)})
        return False
    return True
