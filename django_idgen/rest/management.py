"""What the views share that show and change things: who may, and how refusals are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from rest_framework.exceptions import APIException, NotFound
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request

from .access import Caller
from .base import IdgenView

__all__ = ["Conflict", "ManagementView", "NotThereView", "UnknownTag"]


class ModelPermissions(BasePermission):
    """Django's permissions, by method, as ``view.permissions`` says. Access tokens have none."""

    message = "That takes a permission that you don't have: {permission}."

    def has_permission(self, request: Request, view: Any) -> bool:
        permission = view.permissions.get("GET" if request.method == "HEAD" else request.method)
        if permission is None:
            return True  # a method that there is not: that is said next
        caller = Caller.of(request)
        self.message = type(self).message.format(permission=permission)
        return caller is not None and caller.has_perm(permission)


class ManagementView(IdgenView):
    """A view for people of the project who have the permissions for it."""

    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, ModelPermissions)
    permissions: ClassVar[Mapping[str, str]]
    """The permission that each method takes."""


class Conflict(APIException):
    """409: what is asked for does not go with how things stand."""

    status_code = 409
    default_code = "conflict"


class UnknownTag(NotFound):
    """404."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"There is no tag {tag!r}.")


class NotThereView(IdgenView):
    """For what can't be a tag or a generator: a 404 in JSON, as for one that there is not."""

    schema = None

    def get(self, request: Request, **_kwargs: str) -> NoReturn:  # noqa: ARG002
        raise NotFound

    post = put = patch = delete = get
