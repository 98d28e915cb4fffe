"""Names are compared character by character, on MariaDB with the collation that it comes with.

That one takes "Orders", "ordérs" and "orders " for "orders": whom a right or a token names
must not hang on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connections
from django.test import override_settings

from django_idgen.core.errors import ConfigurationError, InvalidTag, LeaseLost
from django_idgen.leases.database import DatabaseLeases
from django_idgen.models import AccessToken, LeafAlloc, WorkerLease
from django_idgen.ops.tags import edits
from django_idgen.process.tags import TagUnknown
from django_idgen.rest.tokens import find_token, make_token
from django_idgen.sources.server import ServerSource
from tests.leases.server.shop import SHOP
from tests.places import make_tables
from tests.remote.service import EVERYTHING, one_token
from tests.rest.lending.test_segments import Api, idgen

ALIKE = ["Orders", "ordérs", "ÖRDERS"]
"""What the server takes for "orders"."""


@pytest.fixture
def alias(mariadb: str) -> str:
    """An empty database with our tables, of the server's own collation."""
    make_tables(mariadb)
    with connections[mariadb].cursor() as cursor:
        cursor.execute("SELECT 'orders' = %s", ["Orders"])
        assert cursor.fetchone() == (1,)
    return mariadb


def tags(alias: str) -> dict[str, int]:
    return dict(LeafAlloc.objects.using(alias).values_list("pk", "max_id"))


def test_a_tag_alike_is_refused_and_moves_none(alias: str) -> None:
    """Whatever is done to it: the error names both, and the row stays as it was."""
    source = ServerSource(alias=alias)
    source.fetch("orders")
    before = tags(alias)
    for tag in ALIKE:
        with override_settings(IDGEN=idgen(alias)):
            for attempt in (
                lambda tag: source.fetch(tag),
                lambda tag: source.fetch(tag, floor=10**6),
                lambda tag: edits.make_tag(tag, step=10),
                lambda tag: edits.raise_tag(tag, 10**6),
            ):
                with pytest.raises(InvalidTag, match=f"'{tag}'.*'orders'.*collation"):
                    attempt(tag)
            assert not edits.change_row(alias, tag, max_id=10**6, step=7)
            for change in (edits.pause_tag, lambda tag: edits.change_tag(tag, step=7)):
                with pytest.raises(TagUnknown):
                    change(tag)
        with pytest.raises(IntegrityError):
            LeafAlloc(biz_tag=tag, max_id=10**6).save(using=alias)
        assert tags(alias) == before
    assert source.fetch("orders").start == before["orders"]


def test_a_token_for_a_tag_alike_takes_nothing(alias: str) -> None:
    """With ``make_tags`` on, too: 400 with both names, and the other tag stays where it is."""
    with override_settings(ROOT_URLCONF="tests.remote.urls", IDGEN=idgen(alias)):
        api = Api(alias)
        with one_token():
            api.post("orders")
        before = tags(alias)
        with one_token(replace(EVERYTHING, tags=("Orders",))):
            assert api.post("orders").status_code == 403
            answer = api.post("Orders", {"floor": 10**6})
            assert (answer.status_code, "'orders'" in answer.text) == (400, True)
    assert tags(alias) == before


def test_a_row_with_a_space_at_its_end_is_no_tag_of_ours(alias: str) -> None:
    """One that somebody else has written: the tag without the space is refused."""
    LeafAlloc.objects.using(alias).create(biz_tag="orders ", max_id=500)
    with pytest.raises(InvalidTag, match="'orders '"):
        ServerSource(alias=alias).fetch("orders")
    assert tags(alias) == {"orders ": 500}


def test_with_a_binary_collation_tags_alike_are_tags_of_their_own(alias: str) -> None:
    """The way out that the error tells."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "ALTER TABLE leaf_alloc MODIFY biz_tag varchar(128) "
            "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL"
        )
    source = ServerSource(alias=alias)
    assert [source.fetch(tag).start for tag in ("orders", *ALIKE)] == [1] * 4
    assert source.fetch("Orders").start == source.fetch("orders").start > 1


def test_a_namespace_alike_is_refused(alias: str) -> None:
    """They would share a record; after a loss one of them would not know of it."""
    DatabaseLeases(SHOP, database=alias).acquire(holder="web")
    with pytest.raises(ConfigurationError, match=r"'Shop'.*'shop'.*collation"):
        DatabaseLeases(replace(SHOP, name="Shop"), database=alias).acquire(holder="web")


def test_spaces_are_no_token_of_a_lease_that_was_given_back(alias: str) -> None:
    """It has none, which the server takes for any number of spaces."""
    registry = DatabaseLeases(SHOP, database=alias)
    lease = registry.acquire(holder="web").lease
    with pytest.raises(LeaseLost):
        registry.renew(replace(lease, token=lease.token.upper()), last_tick=lease.start)
    assert registry.release(lease, last_tick=lease.start)
    with pytest.raises(LeaseLost):
        registry.renew(replace(lease, token="  "), last_tick=lease.start)
    assert WorkerLease.objects.using(alias).get().token == ""


def test_the_tokens_of_a_name_alike_are_not_ended(alias: str, settings: Any) -> None:
    """Neither by replacing nor by revoking those of the name; nor are their rights taken over."""
    settings.DATABASE_ROUTERS = [f"{__name__}.ToMariaDB"]
    with connections[alias].schema_editor() as editor:
        editor.create_model(AccessToken)
    make_token("shop", tags=["a"])
    secrets = [make_token(name, tags=["everything"])[1] for name in ("Shop", "shop ")]
    call_command("idgen_token", "rotate", "shop", "--overlap", "0s")
    assert AccessToken.objects.using(alias).latest("pk").tags == "a"
    call_command("idgen_token", "revoke", "shop")
    assert all(find_token(secret) for secret in secrets)


class ToMariaDB:
    """Tokens are kept on the server."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "mariadb" if model is AccessToken else None

    db_for_write = db_for_read
