"""Who looks at the admin's pages, with what permissions."""

from __future__ import annotations

from django.contrib.auth.models import Permission, User
from django.test import Client

__all__ = ["staff"]


def staff(*permissions: str, name: str = "staff") -> Client:
    """A client logged in as a member of the staff with these permissions (``view_leafalloc``)."""
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="django_idgen", codename__in=permissions)
    )
    client = Client()
    client.force_login(user)
    return client
