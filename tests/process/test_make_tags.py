"""``make_tags``: a misspelt tag is only made where that is allowed (hazard 82)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings

from django_idgen import segments
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.ops.tags.edits import make_tag
from django_idgen.process import handlers
from django_idgen.process.tags import TagUnknown, find_tag
from django_idgen.settings.config import SettingsError, read_settings
from tests.app.models import Invoice
from tests.places import idgen_on
from tests.servers import free_port


def strict(alias: str, **rest: Any) -> dict[str, Any]:
    settings = idgen_on(alias)
    options = {**settings["SEGMENTS"]["OPTIONS"], "make_tags": False}
    return {**settings, "SEGMENTS": {**settings["SEGMENTS"], "OPTIONS": options}, **rest}


@pytest.fixture(params=["default", "postgres", "mariadb"])
def alias(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without tags, from which ids are strictly taken."""
    request.getfixturevalue("no_tags" if request.param == "default" else request.param)
    handlers.reset()  # rows that other tests have loaded are none here
    with override_settings(IDGEN=strict(request.param)):
        yield request.param
        handlers.reset()


def test_a_misspelt_tag_is_refused(alias: str) -> None:
    """It is named, with the tags that it may be meant for and the way out; nothing is made."""
    make_tag("orders", step=10)
    assert segments["orders"].next_id() == 1
    for _ in range(2):
        with pytest.raises(TagUnknown, match=r"no tag 'ordre'. Is it 'orders'\?.*make_tags"):
            segments["ordre"]
    with pytest.raises(TagUnknown, match=r"no tag .quite another.\. Make it in the admin"):
        segments["quite another"].next_id()
    assert find_tag("ordre") is None
    assert "ordre" not in segments


def test_the_tag_of_a_field_is_made(alias: str) -> None:
    """By a row that is saved, and by its name."""
    assert segments["app.voucher"].next_id() == 1
    with pytest.raises(TagUnknown, match=r"Is it 'app.invoice'"):
        segments["app.invoices"]
    assert Invoice._meta.pk.next_value() == 1
    assert segments["app.invoice"].next_id() == 2


@pytest.mark.parametrize("alias", ["postgres", "mariadb"], indirect=True)
def test_coroutines_are_refused_in_the_same_words(alias: str) -> None:
    """Asking for the tag needs no thread of theirs: on servers, since in memory the thread that
    made it is the only one that sees it."""

    async def take(tag: str) -> int:
        return await segments[tag].anext_id()  # type: ignore[no-any-return, attr-defined]

    make_tag("orders", step=10)
    assert asyncio.run(take("orders")) == 1
    with pytest.raises(TagUnknown, match="Is it 'orders'"):
        asyncio.run(take("ordre"))


def test_commands_refuse_it_in_words(alias: str) -> None:
    """No traceback, and no tag."""
    with pytest.raises(CommandError, match="no tag 'ordre'"):
        call_command("idgen_bench", "segment:ordre", "--count", "10")
    assert find_tag("ordre") is None


def test_a_database_that_is_down_refuses_no_tag(postgres: str, shipped_timeout: float) -> None:
    """It can't tell: ids come from a pool, or not at all. Then a misspelt one is refused."""
    settings = connections.settings[postgres]
    up = settings["PORT"]
    with override_settings(IDGEN=strict(postgres)):
        connections[postgres].close()
        settings["PORT"] = connections[postgres].settings_dict["PORT"] = str(free_port())
        try:
            with pytest.raises(SegmentUnavailable):
                segments["ordre"].next_id()
        finally:
            settings["PORT"] = connections[postgres].settings_dict["PORT"] = up
        with pytest.raises(TagUnknown):
            segments["ordre"]
        handlers.reset()


def test_tags_are_made_where_nothing_is_said(no_tags: None) -> None:
    """As before: the setting is for those who want it."""
    assert segments["ordre"].next_id() == 1


def test_another_value_is_refused() -> None:
    """It is named with where it stands."""
    for value in (None, 1, "no"):
        with (
            override_settings(IDGEN={"SEGMENTS": {"OPTIONS": {"make_tags": value}}}),
            pytest.raises(SettingsError, match=r"OPTIONS'\]\['make_tags'\] must be True or False"),
        ):
            read_settings()
