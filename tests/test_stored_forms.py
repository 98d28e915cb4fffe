"""What another version of django_idgen stored is refused in words, and never taken as new.

Older or newer: a process that does not know the form gives out nothing by it, and leaves it as it
is. So two versions that meet never give out one id twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import (
    ConfigurationError,
    IdgenError,
    RegistryUnavailable,
    SegmentUnavailable,
)
from django_idgen.db.connection import home_of
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord, WorkerLease
from django_idgen.process import maps
from django_idgen.sources.file import FileSource
from tests.places import place

__all__ = ["place"]

OTHERS = (0, 2, 99)
SAID = r"another version of django_idgen, with protocol {}; this one knows 1"


@pytest.fixture
def shop(place: str) -> Iterator[str]:
    """A database that has given out an id of each kind; the process has ended."""
    segments["orders"].next_id()
    generators["default"].next_id()
    maps.reset()
    yield place
    maps.reset()


def refused(protocol: object, error: type[IdgenError] = ConfigurationError) -> Any:
    return pytest.raises(error, match=SAID.format(protocol))


# --- rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", OTHERS)
def test_an_installation_of_another_version(shop: str, protocol: int) -> None:
    """Neither its tags nor its worker ids are given out; a process that ran goes on until then."""
    Installation.objects.using(shop).update(protocol=protocol)
    before = list(LeafAlloc.objects.using(shop).values())
    with refused(protocol):
        segments["orders"].next_id()
    with refused(protocol):
        segments["new"].next_id()
    with refused(protocol):
        generators["default"].next_id()
    assert list(LeafAlloc.objects.using(shop).values()) == before
    Installation.objects.using(shop).update(protocol=1)
    assert segments["orders"].next_id() > 1
    assert generators["default"].next_id()


@pytest.mark.parametrize("model", [NamespaceRecord, WorkerLease])
@pytest.mark.parametrize("protocol", OTHERS)
def test_records_of_worker_ids(shop: str, model: Any, protocol: int) -> None:
    """The namespace's, and that of a worker id."""
    rows = model.objects.using(shop)
    rows.update(protocol=protocol)
    before = list(rows.values())
    with refused(protocol):
        generators["default"].next_id()
    assert list(rows.values()) == before


def test_two_versions_that_meet_repeat_nothing(shop: str) -> None:
    """One that runs goes on for a while beside the other, which has changed the form."""
    had = segments["orders"].next_ids(5)
    Installation.objects.using(shop).update(protocol=2)
    rows = LeafAlloc.objects.using(shop)
    with transaction.atomic(using=home_of(shop)):
        rows.update(max_id=F("max_id") + F("step"))
        row = rows.get()
    taken = range(row.max_id - row.step, row.max_id)
    with suppress(ConfigurationError):
        had += [segments["orders"].next_id() for _ in range(500)]
    assert not set(had) & set(taken)
    assert len(set(had)) == len(had)


# --- files -----------------------------------------------------------------------------


def with_leases(backend: str, **options: Any) -> dict[str, Any]:
    return {"GENERATORS": {"default": {"LEASES": {"BACKEND": backend, "OPTIONS": options}}}}


def rewritten(path: Path, protocol: object) -> str:
    text = json.dumps({**json.loads(path.read_text()), "protocol": protocol})
    path.write_text(text)
    return text


@pytest.mark.parametrize("protocol", [*OTHERS, "1b", None])
def test_the_mark_of_a_static_worker_id(tmp_path: Path, protocol: object) -> None:
    idgen = with_leases("django_idgen.leases.static.StaticLeases", worker=3, directory=tmp_path)
    with override_settings(IDGEN=idgen):
        generators["default"].next_id()
        maps.reset()
        (mark,) = tmp_path.glob("*.mark")
        text = rewritten(mark, protocol)
        with refused(protocol, RegistryUnavailable):
            generators["default"].next_id()
        assert mark.read_text() == text
        maps.reset()


@pytest.mark.parametrize("protocol", [*OTHERS, "1b", None])
def test_a_checkpoint(shop: str, tmp_path: Path, protocol: object) -> None:
    """The registry behind it is not asked: a process of the other version may hold the lease."""
    idgen = with_leases(
        "django_idgen.leases.checkpointed.CheckpointedLeases",
        directory=tmp_path,
        registry={
            "BACKEND": "django_idgen.leases.database.DatabaseLeases",
            "OPTIONS": {"database": shop},
        },
    )
    with override_settings(IDGEN=idgen):
        generators["default"].next_id()
        maps.reset()
        (kept,) = tmp_path.glob("*.lease")
        text = rewritten(kept, protocol)
        with refused(protocol, RegistryUnavailable):
            generators["default"].next_id()
        assert kept.read_text() == text
        maps.reset()


@pytest.mark.parametrize("form", ["v2 17\n", "{}", "0" * 21 + "17", "\0" * 42])
def test_files_of_serials(tmp_path: Path, form: str) -> None:
    """Both files of a tag, or one of them."""
    source = FileSource(directory=tmp_path, default_step=10)
    had = source.fetch("orders")
    for changed in (sorted(tmp_path.iterdir()), sorted(tmp_path.iterdir())[:1]):
        sound = {path: path.read_text() for path in changed}
        for path in changed:
            path.write_text(form)
        with pytest.raises(SegmentUnavailable, match=r"is damaged .*20 digits"):
            source.fetch("orders")
        assert all(path.read_text() == form for path in changed)
        for path, text in sound.items():
            path.write_text(text)
    assert source.fetch("orders").start == had.stop
