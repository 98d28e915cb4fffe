"""Fixtures with keys of their own, then the next key: as with a ``BigAutoField`` (hazard 97)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, models, transaction
from django.db.models.signals import post_save
from django.test import override_settings
from django.test.utils import CaptureQueriesContext, isolate_apps

from django_idgen.core.segment import MAX_ID, Demand
from django_idgen.fields import SegmentIdField
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags import edits
from django_idgen.ops.tags.edits import make_tag, pause_tag, raise_tag, resume_tag
from django_idgen.ops.tags.loaded import watch
from django_idgen.process import maps
from django_idgen.process.tags import find_tag
from django_idgen.signals import segment_skipped
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.server import ServerSource
from tests import servers
from tests.app.models import Car, Document, Folder, Invoice, Receipt, Ticket, Vehicle
from tests.ops.doctor.asking import doctor, findings
from tests.places import STEP, idgen_on, make_tables, on_every_database, using
from tests.places import alias as alias
from tests.places import place as place
from tests.server_tools import configured

TAG = "app.invoice"


@pytest.fixture(autouse=True)
def _other_processes_loads_are_not_ours() -> Iterator[None]:
    """Each test is a process that has loaded nothing yet."""
    maps.reset()
    yield
    maps.reset()


def load(path: Path, alias: str, *keys: int, model: str = TAG) -> None:
    """``manage.py loaddata`` of rows with these keys."""
    rows = [{"model": model, "pk": key, "fields": {}} for key in keys]
    load_rows(path, alias, rows)


def load_rows(path: Path, alias: str, rows: list[dict[str, Any]]) -> None:
    fixture = path / "rows.json"
    fixture.write_text(json.dumps(rows))
    call_command("loaddata", str(fixture), database=alias, verbosity=0)


def created(alias: str, count: int = 3) -> list[int]:
    return [Invoice.objects.using(alias).create().pk for _ in range(count)]


def stored(tag: str = TAG) -> int:
    """What another process would be given next."""
    found = find_tag(tag)
    return 1 if found is None else found.max_id


# --- from the command line ------------------------------------------------------------------


def test_new_keys_lie_past_those_that_were_loaded(place: str, tmp_path: Path) -> None:
    """In this process, and in every other one that fetches from then on.

    The tag is raised on a connection of ours (I4), and the doctor has nothing to say.
    """
    with CaptureQueriesContext(connections[place]) as captured:
        load(tmp_path, place, 1, 2, 3)
    assert [query for query in captured if "leaf_alloc" in query["sql"]] == []
    assert stored() == 4
    assert findings("tags") == []
    other = DatabaseSource(default_step=STEP, database=place).fetch(TAG)
    assert other.start >= 4
    assert min(created(place)) >= other.stop
    assert Invoice.objects.using(place).count() == 6


def test_what_this_process_holds_is_passed_over(place: str, tmp_path: Path) -> None:
    """Keys out of the midst of a segment in use; those below it change nothing."""
    first = created(place)
    top = first[-1] + 5
    load(tmp_path, place, top - 1, top)
    after = created(place)
    assert min(after) > top
    load(tmp_path, place, *first)
    assert created(place, 1) == [after[-1] + 1]


def test_keys_far_above_are_passed_over_to_the_next_one(place: str, tmp_path: Path) -> None:
    """What is held lies below all of them: there is nothing to give up twice."""
    created(place)
    load(tmp_path, place, 10**6, 10**12)
    assert created(place) == [10**12 + 1, 10**12 + 2, 10**12 + 3]


def test_a_tag_is_raised_once_for_all_rows(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one call when all is committed, and none for a load that is rolled back."""
    raised: list[tuple[str, int]] = []

    def counted(tag: str, to: int) -> None:
        raised.append((tag, to))
        raise_tag(tag, to)

    monkeypatch.setattr(edits, "raise_tag", counted)
    with transaction.atomic(using=place):
        load(tmp_path, place, *range(1, 300))
        transaction.set_rollback(True, using=place)
    assert raised == []
    with transaction.atomic(using=place):
        with transaction.atomic(using=place):
            load(tmp_path, place, 400)
            transaction.set_rollback(True, using=place)
        load(tmp_path, place, *range(1, 100))
        load(tmp_path, place, *range(100, 301))
        assert raised == []
    assert raised == [(TAG, 301)]


def test_rows_are_made_before_the_load_is_committed(place: str, tmp_path: Path) -> None:
    """In its very transaction, whether that is committed or not; and the tag keeps up (I4)."""
    for keys in ((1, 2, 3), (7, 8, 9)):
        with transaction.atomic(using=place):
            load(tmp_path, place, *keys)
            assert min(created(place)) > max(keys)
            transaction.set_rollback(True, using=place)
    load(tmp_path, place, 1, 2, 3)
    assert len({1, 2, 3, *created(place)}) == 6


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_what_was_loaded_is_not_taken_for_a_loss(place: str, tmp_path: Path) -> None:
    """A row below a key that was loaded was not flushed: nothing more is skipped."""
    created(place, 1)
    told: list[Any] = []
    segment_skipped.connect(lambda **event: told.append(event), weak=False, dispatch_uid="t")
    try:
        with transaction.atomic(using=place):
            load(tmp_path, place, 5000)
            assert created(place, 1) == [5001]
    finally:
        segment_skipped.disconnect(dispatch_uid="t")
    assert told == []
    source = ServerSource(alias=place, default_step=STEP)
    lost = source.fetch(TAG, floor=10**6, demand=Demand(granted=10**5))
    assert lost.start > 10**6  # as ever, where it was granted more than the row knows


@pytest.mark.parametrize("place", ["journal", "postgres", "mariadb"], indirect=True)
def test_rows_saved_one_by_one(place: str) -> None:
    """Outside of a transaction, and without autocommit, where nobody says when it is committed.

    Text is read as the field reads it.
    """
    Invoice(pk="12").save_base(raw=True, using=place)
    assert stored() == 13
    transaction.set_autocommit(False, using=place)
    try:
        Invoice(pk=14).save_base(raw=True, using=place)
        transaction.rollback(using=place)
    finally:
        transaction.set_autocommit(True, using=place)
    assert stored() == 15


# --- every kind of model ----------------------------------------------------------------------


@on_every_database
def test_each_kind_of_field_and_model(alias: str, tmp_path: Path) -> None:
    """Off the key, with a tag of its own, in parts of a key, inherited; and no other column."""
    rows = [
        {"model": "app.receipt", "pk": 900, "fields": {"number": 41, "stamp": 77}},
        {"model": "app.ticket", "pk": 31, "fields": {}},
        {"model": "app.vehicle", "pk": 21, "fields": {}},
        {"model": "app.car", "pk": 21, "fields": {"doors": 99}},
        {"model": "app.folder", "pk": 5, "fields": {"name": "a"}},
        {"model": "app.document", "pk": [5, 11], "fields": {"folder": 5, "number": 11}},
    ]
    with ids_of(alias):
        load_rows(tmp_path, alias, rows)
        receipt = Receipt.objects.using(alias).create()
        assert receipt.number == 42
        assert Ticket.objects.using(alias).create().pk == 32
        assert Vehicle.objects.using(alias).create().pk == 22
        assert Car.objects.using(alias).create().pk == 23
        folder = Folder.objects.using(alias).get()
        assert Document.objects.using(alias).create(folder=folder).number == 12


@contextmanager
def ids_of(alias: str) -> Iterator[None]:
    """Tags of ``alias``, new for the block: those that earlier tests left are put aside."""
    with override_settings(IDGEN={"SEGMENTS": idgen_on(alias)["SEGMENTS"]}):
        LeafAlloc.objects.using(alias).all().delete()
        yield


@pytest.mark.parametrize("place", ["journal", "postgres"], indirect=True)
@isolate_apps("tests.app")
def test_proxies_and_tags_that_two_models_share(place: str) -> None:
    """A row of a proxy is one of its table; of two tables with one tag the highest counts."""

    class Paid(Invoice):
        class Meta:
            proxy = True
            app_label = "app"

    class Old(models.Model):
        id = SegmentIdField(primary_key=True, tag=TAG)

        class Meta:
            app_label = "app"

    with connections[place].schema_editor() as editor:
        editor.create_model(Old)
    Paid(pk=7).save_base(raw=True, using=place)
    assert created(place, 1)[0] >= 8
    with transaction.atomic(using=place):
        Old(pk=500).save_base(raw=True, using=place)
        Paid(pk=300).save_base(raw=True, using=place)
    assert stored() == 501
    assert created(place, 1)[0] >= 501


def test_only_rows_that_matter_are_listened_to() -> None:
    """Not those of models without a segment id.

    A field is known once though the installed apps change: Django calls each ``ready()`` again.
    """
    assert post_save.has_listeners(Invoice)
    assert not post_save.has_listeners(Folder)
    watch()
    assert [field.model for field in maps.segments.fields[TAG]] == [Invoice]


# --- keys at the edges, and what can't be raised ----------------------------------------------


def test_keys_that_no_tag_gives_out(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Negative ones count for nothing; past the very last ones there is nothing to go on with."""
    load(tmp_path, place, -5, MAX_ID, 3, MAX_ID - 1)
    assert stored() == 4
    assert created(place, 1) == [4] or place == "default"
    assert f"has id {MAX_ID} of tag '{TAG}'" in caplog.text
    assert Invoice.objects.using(place).filter(pk=MAX_ID).exists()


def test_a_paused_tag_is_raised(place: str, tmp_path: Path) -> None:
    """It stays paused; when it is resumed it goes on past the rows."""
    make_tag(TAG, step=STEP)
    pause_tag(TAG)
    load(tmp_path, place, 50)
    assert find_tag(TAG).paused
    resume_tag(TAG)
    assert min(created(place)) > 50


def test_rows_in_one_database_and_tags_in_another(
    postgres: str, mariadb: str, tmp_path: Path
) -> None:
    """``loaddata --database`` raises the tag where it is."""
    with using(mariadb), override_settings(IDGEN=idgen_on(postgres)):
        load(tmp_path, mariadb, 1, 2, 3)
        assert stored() == 4
        assert min(created(mariadb)) >= 4


@pytest.mark.django_db(transaction=True, databases=["default"])
def test_where_a_test_forbids_the_database_of_the_tags(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The marks are in this process then: they go past the rows, and nobody warns."""
    servers.require("postgres")
    with override_settings(IDGEN=idgen_on("postgres")):
        load(tmp_path, "default", 1, 2, 3)
        assert created("default") == [4, 5, 6]
    assert caplog.records == []


def test_a_load_outlives_the_database_of_the_tags(
    postgres: str, mariadb: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows are kept; the log names the tag, how far to raise it, and what does so."""
    make_tables(postgres)
    with using(mariadb), override_settings(IDGEN=idgen_on(postgres)):
        with configured(postgres, NAME="nowhere"):
            load(tmp_path, mariadb, 1, 2, 3)
        assert Invoice.objects.using(mariadb).count() == 3
        warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert f"tag '{TAG}' below 4" in warned[-1]
        assert (
            "Raise the tag to 4 when that is fixed; 'manage.py idgen_doctor --only tags"
            in warned[-1]
        )
        assert stored() == 1
        doctor("tags", fix=True, yes=True)
        assert stored() == 4
        assert min(created(mariadb)) >= 4
        # Though the log keeps the error, and with its traceback what had noted the first rows.
        load(tmp_path, mariadb, 10**6)
        assert stored() == 10**6 + 1
