"""Who may do what: the rules of all views, native and compatible ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.settings import api_settings

from .authentication import TokenAuthentication
from .tokens import KnownToken

__all__ = ["CHANGE", "Caller", "default_authentication"]

CHANGE = "django_idgen.change_leafalloc"


def default_authentication() -> list[type[BaseAuthentication]]:
    """Access tokens first, then what the project's DRF settings have."""
    known: Iterable[Any] = api_settings.DEFAULT_AUTHENTICATION_CLASSES
    return [TokenAuthentication, *known]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: a user of the project, or a program with a token. Frozen."""

    user: Any
    token: KnownToken | None

    @classmethod
    def of(cls, request: Request) -> Caller | None:
        """Who sent the request; None without credentials.

        Raises what the authentications raise.
        """
        user = request.user
        if user is None or not user.is_authenticated:
            return None
        return cls(user, request.auth if isinstance(request.auth, KnownToken) else None)

    @property
    def key(self) -> str:
        """Tells callers apart, for throttles."""
        return str(self.user.pk)

    def may_take_of_tag(self, tag: str) -> bool:
        """A token only of the tags that it names; a user of any."""
        return self.token is None or self.token.may_take_of_tag(tag)

    def refusal(self, what: str) -> str:
        """What to say where the token does not name the ``what`` that is asked for."""
        if self.token is not None and self.token.names_nothing:
            return "This access token names no tag, no generator and no lease: it may take nothing."
        return f"This access token does not name that {what}."

    def check_segments_of(self, tag: str) -> None:
        """Raise :class:`PermissionDenied` unless it may take whole segments of ``tag``.

        They move the tag as far as the caller says: a user may do so who may change tags.
        """
        if self.token is None and not self.has_perm(CHANGE):
            raise PermissionDenied(
                f"A whole segment moves the tag. That takes the permission {CHANGE}, or an access "
                f"token that names the tag."
            )
        if not self.may_take_of_tag(tag):
            raise PermissionDenied(self.refusal("tag"))

    def may_take_of_generator(self, alias: str) -> bool:
        return self.token is None or self.token.may_take_of_generator(alias)

    def may_borrow_of_generator(self, alias: str) -> bool:
        """Worker ids are for programs: only a token can name their generators."""
        return self.token is not None and self.token.may_borrow_of_generator(alias)

    def has_perm(self, permission: str) -> bool:
        """A Django permission such as ``django_idgen.change_leafalloc``; tokens have none."""
        return bool(self.user.has_perm(permission))
