"""The service as a program: gunicorn loads ``application``."""

from __future__ import annotations

from unittest import mock

from django.conf import settings
from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
settings.ROOT_URLCONF = "tests.remote.urls"

from django_idgen.rest.authentication import TOKENS  # noqa: E402 - needs the settings

from .service import EVERYTHING, SECRET  # noqa: E402

# One token that is known without a table of users, which this site doesn't have.
mock.patch.object(TOKENS, "_find", lambda text: EVERYTHING if text == SECRET else None).start()
