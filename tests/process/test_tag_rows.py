"""The rows of ``LeafAlloc`` that people see and edit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connections, transaction
from django.db.models.signals import post_migrate

from django_idgen import segments
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.models import LeafAlloc
from django_idgen.process import handlers
from tests import places
from tests.places import STEP, make_tables
from tests.places import place as place


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


# --- on every database ----------------------------------------------------------


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
        handlers.reset()
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
