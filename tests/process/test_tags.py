"""Tags: the rows that people see and edit, what becomes of idle ones, and of misspelt ones."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.db.models.signals import post_migrate
from django.test import override_settings

from django_idgen import segments
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.edits import make_tag
from django_idgen.process import maps
from django_idgen.process.tags import TagUnknown, find_tag
from django_idgen.testing import fixed_ids, no_registry
from tests import places
from tests.app.models import Invoice
from tests.places import STEP, idgen_on, make_tables
from tests.places import place as place
from tests.server_tools import unreachable

# --- the rows of LeafAlloc ----------------------------------------------------


@pytest.fixture
def tagged(place: str) -> str:
    """The alias of a database with our tables, where the tag "t" is in use."""
    make_tables(place)
    # The first fetch may take its time on a busy machine.
    assert segments["t"].preload(60)  # type: ignore[attr-defined]
    segments["t"].next_ids(STEP)
    return place


def row(alias: str = "default", tag: str = "t") -> LeafAlloc:
    return LeafAlloc.objects.using(alias).get(pk=tag)


def edit(alias: str, **changes: int) -> None:
    LeafAlloc.objects.using(alias).filter(pk="t").update(**changes)


def migrated(**said: object) -> None:
    """As ``migrate`` says for each app; this one has no models that others would look at."""
    config = apps.get_app_config("messages")
    post_migrate.send(config, app_config=config, **said)


def test_the_row_stands_where_the_marks_stand(tagged: str) -> None:
    """``max_id`` is the first id that nobody was given, ``step`` what a fetch takes."""
    stop = segments["t"].stats().current.stop
    assert row(tagged).max_id >= stop
    assert row(tagged).step == STEP


@pytest.fixture(params=["autocommit", "atomic"])
def block(request: pytest.FixtureRequest, tagged: str) -> Callable[[], Any]:
    """What each edit and each id is inside of: a transaction, or nothing."""
    return partial(transaction.atomic, using=tagged) if request.param == "atomic" else nullcontext


def test_a_step_edited_reaches_the_next_fetch(tagged: str, block: Callable[[], Any]) -> None:
    """It needs no restart, also where every edit and every id is inside a transaction."""
    with block():
        edit(tagged, step=7)
    steps = set()
    for _ in range(5):
        with block():
            segments["t"].next_ids(STEP)
        steps.add(segments["t"].stats().current.step)
    assert segments["t"].stats().current.step == 7
    assert steps <= {7, STEP}


def test_an_edit_by_save_counts_too(tagged: str) -> None:
    """As ``ModelAdmin`` and scripts make it."""
    found = row(tagged)
    found.step = 9
    found.save(update_fields=["step"])
    segments["t"].next_ids(5 * STEP)
    assert segments["t"].stats().current.step == 9


def test_ids_skip_ahead_where_max_id_is_raised(tagged: str, block: Callable[[], Any]) -> None:
    """A ``max_id`` raised by hand counts from the next fetch on."""
    edit(tagged, max_id=1_000_000)
    with block():
        ids = segments["t"].next_ids(5 * STEP)
    assert ids[-1] >= 1_000_000
    segments["t"].next_ids(STEP)
    assert row(tagged).max_id > ids[-1]


def test_a_step_that_can_not_be_is_named(shipped_timeout: float, tagged: str) -> None:
    """A step of 0 gives an error with the tag and the way out, and nothing is lost."""
    edit(tagged, step=0)
    with pytest.raises(SegmentUnavailable, match="Tag 't' has step 0 in leaf_alloc"):
        segments["t"].next_ids(5 * STEP)
    edit(tagged, step=STEP)
    assert segments["t"].next_id() > STEP


# --- SQLite in memory ------------------------------------------------------------------


@pytest.fixture
def in_memory(tmp_path: Path, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), places.sqlite(tmp_path):
        connections["default"].close()
        name = f"file:{tmp_path.name}?mode=memory&cache=shared"
        connections.settings["default"]["NAME"] = name
        maps.reset()
        make_tables("default")
        yield


@pytest.mark.usefixtures("in_memory")
def test_a_row_in_memory_counts_as_well() -> None:
    """A test that makes a tag by hand sees its step and its start."""
    LeafAlloc.objects.create(biz_tag="t", max_id=500, step=7)
    assert segments["t"].next_ids(8)[0] == 500
    assert segments["t"].stats().current.step == 7


@pytest.mark.usefixtures("in_memory")
def test_migrate_leaves_rows_in_memory() -> None:
    """A copy of the database, in another process, goes on where the migrations left off."""
    with transaction.atomic():
        segments["t"].next_ids(STEP + 1)
    migrated()
    assert row().max_id == segments["t"].stats().floor > STEP + 1


# --- what becomes of tags that nobody uses ------------------------------------


class Hands:
    """A stopwatch that a test moves on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def read(self) -> float:
        return SYSTEM_CLOCK.stopwatch() + self.ahead

    def pass_idle(self) -> None:
        allocator = segments.allocator()
        for _ in range(2):
            self.ahead += allocator.idle_after + 1
            allocator.sweep()


@pytest.fixture
def hands() -> Iterator[Hands]:
    with no_registry():
        moved = Hands()
        segments.allocator().clock = replace(SYSTEM_CLOCK, stopwatch=moved.read)
        yield moved


def test_an_idle_tag_leaves_the_map(hands: Hands) -> None:
    """It takes no memory any more, and its next id is higher than all before."""
    assert segments["order"].next_id() == 1
    gone = weakref.ref(segments["order"])
    hands.pass_idle()
    assert "order" not in segments
    gc.collect()
    assert gone() is None
    assert segments["order"].next_id() > 1


def test_a_generator_that_is_still_held_is_found_again(hands: Hands) -> None:
    """Who kept it in a variable and who looks it up take from one generator."""
    held = segments["order"]
    held.next_id()
    hands.pass_idle()
    found = segments["order"]
    assert found is held
    assert found.next_id() < held.next_id() < segments["order"].next_id()


def test_what_stands_in_for_a_tag_in_a_test_stays(hands: Hands) -> None:
    """Only the generator that went idle is dropped from the map."""
    segments["order"].next_id()
    with fixed_ids(7, tag="order"):
        hands.pass_idle()
        assert segments["order"].next_id() == 7
    assert segments["order"].next_id() > 1


# --- make_tags: a misspelt tag is only made where that is allowed (hazard 82) ---


def strict(alias: str, **rest: Any) -> dict[str, Any]:
    settings = idgen_on(alias)
    options = {**settings["SEGMENTS"]["OPTIONS"], "make_tags": False}
    return {**settings, "SEGMENTS": {**settings["SEGMENTS"], "OPTIONS": options}, **rest}


@pytest.fixture(params=["default", "postgres", "mariadb"])
def alias(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without tags, from which ids are strictly taken."""
    request.getfixturevalue("no_tags" if request.param == "default" else request.param)
    maps.reset()  # rows that other tests have loaded are none here
    with override_settings(IDGEN=strict(request.param)):
        yield request.param
        maps.reset()


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
    with override_settings(IDGEN=strict(postgres)):
        with unreachable(postgres), pytest.raises(SegmentUnavailable):
            segments["ordre"].next_id()
        with pytest.raises(TagUnknown):
            segments["ordre"]
        maps.reset()
