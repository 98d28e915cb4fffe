"""The application that gunicorn and uWSGI load; it may take ids before they fork."""

from __future__ import annotations

import importlib
import os

from django.core.wsgi import get_wsgi_application


def postfork() -> None:
    """A hook of the project's own, which sets its mark where it runs."""
    from .taking import record

    record({"hook": os.getpid()})


def set_hook() -> None:
    importlib.import_module("uwsgi").post_fork_hook = postfork


HOOK = os.environ.get("SITE_HOOK")
if HOOK == "before":
    set_hook()

application = get_wsgi_application()

from .taking import take_early  # noqa: E402 - needs the settings

take_early()
if HOOK == "after":
    set_hook()
elif HOOK == "decorator":
    importlib.import_module("uwsgidecorators").postfork(postfork)
