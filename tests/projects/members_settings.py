"""The sample project with a user model whose key is a snowflake."""

from __future__ import annotations

from simple_admin_settings import *  # noqa: F403
from simple_admin_settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "members", "rest_framework.authtoken"]
AUTH_USER_MODEL = "members.Member"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
