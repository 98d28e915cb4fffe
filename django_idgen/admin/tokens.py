"""The admin pages of access tokens.

A secret is shown once, in the answer to the POST that made it. A page after that one would
need it kept in a session, a cookie or a URL. So a reload of the answer repeats its POST, which
must make no second token: see :class:`NewTokenForm` and :meth:`AccessTokenAdmin.replace`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.widgets import AdminTextareaWidget
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import Error, models, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import NoReverseMatch, reverse
from django.utils.cache import add_never_cache_headers
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables

from ..core.segment import MAX_ID
from ..models import AccessToken, LeafAlloc
from ..process.maps import current_settings
from ..rest.tokens import (
    fits,
    living_tokens,
    replace_living_token,
    revoke_tokens,
    set_new_secret,
    stored_tokens,
    warnings_about,
)
from ..settings import SettingsError
from .base import PageAdmin, column, database_of
from .text import moment_text

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[AccessToken]
else:
    ModelForm = forms.ModelForm


RIGHTS = ("tags", "generators", "leases")
OVERLAP = timedelta(days=1)
"""How long a token still works after it was replaced here."""
Made = tuple[AccessToken, str]


class StateFilter(admin.SimpleListFilter):
    """Tokens that work, and tokens that have ended."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:  # noqa: ARG002
        return [("works", _("works")), ("ended", _("ended"))]

    def queryset(
        self,
        request: HttpRequest,  # noqa: ARG002
        queryset: QuerySet[AccessToken],
    ) -> QuerySet[AccessToken]:
        living = living_tokens().values("pk")
        if self.value() == "works":
            return queryset.filter(pk__in=living)
        if self.value() == "ended":
            return queryset.exclude(pk__in=living)
        return queryset


def newest_key() -> int:
    """The key of the token that was made last; 0 without any."""
    return stored_tokens().order_by("-pk").values_list("pk", flat=True).first() or 0


class NewTokenForm(ModelForm):
    """Remembers which token was the newest when the page was opened.

    A repeated POST finds a newer token of the same client, and makes none.
    """

    newest = forms.IntegerField(
        label="",
        widget=forms.HiddenInput,
        required=False,
        min_value=0,
        max_value=MAX_ID,
        initial=newest_key,
    )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        known, name = values.get("newest"), values.get("name")
        if known is None or name is None:
            return values
        made = stored_tokens().filter(name=name, pk__gt=known).order_by("-pk").first()
        if made is not None:
            # The page that this answers with does make another.
            self.data = data = cast("QueryDict", self.data).copy()
            data[self.add_prefix("newest")] = str(made.pk)
            raise ValidationError(
                f"Since you opened this page, token {made} was made and its secret was shown. "
                f"Save again to make another token."
            )
        return values


@admin.register(AccessToken)
class AccessTokenAdmin(PageAdmin):
    """Tokens are made, given other rights, replaced and revoked here."""

    list_display = ("name", "ends_in", "state", "rights", "expires")
    list_filter = (StateFilter,)
    search_fields = ("name", "=hint")
    fields = ("name", "tags", "generators", "leases", "expires_at")
    readonly_fields = ("ends_in", "made")
    actions = ("replace", "revoke")
    formfield_overrides: ClassVar[Any] = {
        models.TextField: {"widget": AdminTextareaWidget(attrs={"rows": 4})}
    }

    @column(gettext_lazy("secret"))
    def ends_in(self, token: AccessToken) -> str:
        return f"…{token.hint}"

    @column(gettext_lazy("may take"))
    def rights(self, token: AccessToken) -> str:
        fields: Any = map(self.opts.get_field, RIGHTS)
        named = ((field.verbose_name, field.value_from_object(token)) for field in fields)
        lines = ((f"{what}: {', '.join(text.splitlines())}",) for what, text in named if text)
        return format_html_join(mark_safe("<br>"), "{}", lines) or _("nothing")  # nosec B308  # a constant

    @column(gettext_lazy("expires"), ordering="expires_at")
    def expires(self, token: AccessToken) -> str:
        return moment_text(token.expires_at) if token.expires_at else _("never")

    @column(gettext_lazy("state"))
    def state(self, token: AccessToken) -> str:
        return _("ended") if token.has_ended else _("works")

    @admin.display(description=gettext_lazy("made"))
    def made(self, token: AccessToken) -> str:
        return moment_text(token.created_at)

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        """A token that has ended can't be changed."""
        ended = obj is not None and cast("AccessToken", obj).has_ended
        return not ended and super().has_change_permission(request, obj)

    def get_fields(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        shown = super().get_fields(request, obj)
        return [*shown, "newest"] if obj is None else [*shown, "ends_in", "made"]

    # --- a new one ------------------------------------------------------------------

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is None:
            kwargs["form"] = NewTokenForm
        return super().get_form(request, obj, change, **kwargs)

    @sensitive_variables("secret")
    def save_model(self, request: HttpRequest, obj: models.Model, form: Any, change: bool) -> None:
        token = cast("AccessToken", obj)
        for warning in warnings_about(token):
            self.message_user(request, warning, messages.WARNING)
        if change:
            super().save_model(request, obj, form, change)
            return
        secret = set_new_secret(token)
        token.save(force_insert=True)
        # Kept on the request, which ends with this answer.
        request.__dict__["idgen_made"] = [(token, secret)]

    def response_add(
        self,
        request: HttpRequest,
        obj: models.Model,  # noqa: ARG002
        post_url_continue: str | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        if IS_POPUP_VAR in request.POST:
            raise PermissionDenied  # a popup would hide the secret, and nothing refers to tokens
        return self._show_secrets(request, request.__dict__.pop("idgen_made"))

    def has_replace_permission(self, request: HttpRequest) -> bool:
        # It makes a token and ends the old ones.
        return self.has_add_permission(request) and self.has_change_permission(request)

    # --- actions ----------------------------------------------------------------------

    @admin.action(
        description=gettext_lazy("Replace (the old ones work for one more day)"),
        permissions=["replace"],
    )
    @sensitive_variables("made")
    def replace(self, request: HttpRequest, queryset: QuerySet[AccessToken]) -> HttpResponse | None:
        # The latest token of each client has the rights that apply now.
        chosen = queryset.filter(pk__in=living_tokens().values("pk")).order_by("pk")
        made = []
        for token in {token.name: token for token in chosen}.values():
            # A repeated POST ends here: the token that it replaced has a newer one.
            newer = living_tokens().filter(name=token.name, pk__gt=token.pk).first()
            if newer is None:
                made.append(replace_living_token(token, overlap=OVERLAP))
            else:
                text = f"{token} has a newer token, {newer}: replace that one."
                self.message_user(request, text, messages.WARNING)
        if not chosen:
            text = "None of these tokens works any more."
            self.message_user(request, text, messages.WARNING)
        if not made:
            return None
        for token, _secret in made:
            self.log_addition(request, token, [{"added": {}}])
        return self._show_secrets(request, made, replaced=True)

    @admin.action(description=gettext_lazy("Revoke now"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[AccessToken]) -> None:
        for token in (each for each in queryset if not each.has_ended):
            self.log_change(request, token, [{"changed": {"fields": ["expires_at"]}}])
        revoked = revoke_tokens(queryset)
        text = f"{revoked} revoked. All processes refuse them within {_max_age():g} s."
        self.message_user(request, text, messages.SUCCESS)

    # --- the page of secrets ----------------------------------------------------------

    @sensitive_variables("made")
    def _show_secrets(
        self, request: HttpRequest, made: list[Made], *, replaced: bool = False
    ) -> HttpResponse:
        response = self.render_page(
            request,
            "accesstoken/secret.html",
            _("Save the secret now: it is shown only once"),
            made=[(token, secret, _curl(request, token, secret)) for token, secret in made],
            replaced=replaced,
        )
        add_never_cache_headers(response)
        return response.render()


@sensitive_variables("secret")
def _curl(request: HttpRequest, token: AccessToken, secret: str) -> str:
    """The command that takes an id with ``token``, or shows the terms of a lease."""
    views = {"tags": "tag-ids", "generators": "generator-ids", "leases": "generator-leases"}
    right = next((right for right in RIGHTS if getattr(token, right)), "tags")
    try:
        path = reverse(f"django_idgen:{views[right]}", args=[_example(token, right)])
    except NoReverseMatch:  # another project has the service
        url = "https://HOST/PATH"
    else:
        url = request.build_absolute_uri(path)
    post = "" if right == "leases" else "-X POST "
    return f"curl {post}-H 'Authorization: Bearer {secret}' '{url}'"


def _example(token: AccessToken, right: str) -> str:
    """A tag or a generator that ``token`` names."""
    pattern = next(iter(getattr(token, right).splitlines()), "*")
    alias, known = database_of(LeafAlloc), ["default"]
    if right == "tags":
        known = []
        with suppress(Error), transaction.atomic(alias):  # not that of the tokens, maybe
            known += LeafAlloc.objects.using(alias).values_list("pk", flat=True)[:100]
    return next((name for name in known if fits(pattern, name)), pattern.replace("*", "orders"))


def _max_age() -> float:
    try:
        return current_settings().rest.token_max_age
    except SettingsError:
        return 60.0
