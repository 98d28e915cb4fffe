"""The sample project as an id service, for programs alone: nobody can log in."""

from __future__ import annotations

from project_settings import *  # noqa: F403

ROOT_URLCONF = "shop.service_urls"
REST_FRAMEWORK = {"UNAUTHENTICATED_USER": None}
