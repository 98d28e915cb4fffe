"""Who asks in the tests: a user who needs no tables, with the permissions that a test gives."""

from __future__ import annotations

from typing import Any

from rest_framework.test import APIClient

VIEW, ADD, CHANGE = (f"django_idgen.{what}_leafalloc" for what in ("view", "add", "change"))
LEASES = "django_idgen.view_workerlease"
RELEASE = "django_idgen.change_workerlease"


class Person:
    """A user of the project."""

    is_authenticated = is_active = True
    is_anonymous = is_superuser = False

    def __init__(self, *permissions: str, staff: bool = False) -> None:
        self.pk = 1
        self.permissions = permissions
        self.is_staff = staff

    def has_perm(self, permission: str, obj: object = None) -> bool:
        return permission in self.permissions


def client_of(person: Any) -> APIClient:
    """A client that asks as ``person``, in JSON unless told."""
    client = APIClient()
    client.default_format = "json"
    client.force_authenticate(user=person)
    return client


def clerk() -> APIClient:
    """One who may do everything here."""
    return client_of(Person(VIEW, ADD, CHANGE, LEASES, RELEASE))
