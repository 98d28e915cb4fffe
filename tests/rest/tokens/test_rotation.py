"""Tokens on a database server: replaced by many at once, read where they are written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.db import connections

from django_idgen.models import AccessToken
from django_idgen.rest.tokens import find_token, make_token, replace_token


def test_of_many_replacements_at_once_the_last_one_survives(postgres: str, settings: Any) -> None:
    """None of them may end each other: a client would be left without any."""
    settings.DATABASE_ROUTERS = [f"{__name__}.ToPostgres"]
    with connections[postgres].schema_editor() as editor:
        editor.create_model(AccessToken)
    make_token("shop", tags=["a"])

    def replace(_number: int) -> str:
        try:
            return replace_token("shop", overlap=timedelta(hours=1))[1]
        finally:
            connections[postgres].close()

    with ThreadPoolExecutor(8) as pool:
        secrets = list(pool.map(replace, range(24)))
    assert all(find_token(secret) for secret in secrets)
    endless = AccessToken.objects.using(postgres).filter(expires_at=None)
    last = AccessToken.objects.using(postgres).latest("pk")
    assert last in endless


class ToPostgres:
    """Tokens are written to a server, and read from a replica that has none of them yet."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "default" if model is AccessToken else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "postgres" if model is AccessToken else None
