"""Signals: what the generators tell, and that listening can do no harm."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.db.models import Model
from django.db.models.signals import post_save, pre_save

from django_idgen import generators, next_id, segments, signals
from django_idgen.core.loader import InlineLoader
from django_idgen.core.segment_allocator import SegmentAllocator
from django_idgen.process import handlers
from django_idgen.sources.memory import MemorySource
from tests import places
from tests.app.models import Folder
from tests.server_tools import sessions


@pytest.fixture
def tea() -> Iterator[Any]:
    allocator = SegmentAllocator(
        MemorySource(default_step=10), InlineLoader(), on_event=signals.emit
    )
    yield allocator.generator("tea")
    allocator.close()


@pytest.fixture
def heard() -> Iterator[list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []

    def receiver(**values: Any) -> None:
        events.append(values)

    signals.segment_loaded.connect(receiver, weak=False)
    yield events
    signals.segment_loaded.disconnect(receiver)


def test_a_receiver_hears_the_values_that_the_signal_documents(
    tea: Any, heard: list[dict[str, Any]]
) -> None:
    """``segment_loaded`` names the tag and the segment."""
    tea.next_id()
    assert [event["tag"] for event in heard] == ["tea"]
    assert heard[0]["segment"].start == 1
    assert heard[0]["sender"] == "django_idgen"


def broken(**_values: Any) -> None:
    raise RuntimeError("a bug in the user's receiver")


class BrokenReceiver:
    """A callable without a name."""

    def __call__(self, **_values: Any) -> None:
        broken()


@pytest.fixture(params=[broken, BrokenReceiver(), partial(broken)])
def receiver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One that fails: a function, an object, a ``partial``."""
    signals.segment_loaded.connect(request.param, weak=False)
    yield request.param
    signals.segment_loaded.disconnect(request.param)


def test_a_receiver_that_fails_does_no_harm(
    receiver: Any, tea: Any, heard: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """What it raises is logged; the caller gets its id, and the other receivers hear of it."""
    with caplog.at_level(logging.ERROR, "django_idgen"):
        assert tea.next_id() == 1
    assert "a bug in the user's receiver" in caplog.text
    assert [event["tag"] for event in heard] == ["tea"]


def test_a_receiver_may_ask_for_an_id_itself(tea: Any) -> None:
    """Signals are sent while no lock is held."""
    got = []

    def asks(**_values: Any) -> None:
        got.append(tea.next_id())

    signals.segment_loaded.connect(asks, weak=False)
    try:
        first = tea.next_id()
    finally:
        signals.segment_loaded.disconnect(asks)
    assert sorted([first, *got]) == [1, 2]


def test_every_event_has_a_level_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log receivers that come with the app name the event and its values."""
    assert set(signals.LEVELS) == set(signals.SIGNALS)
    with caplog.at_level(logging.DEBUG, "django_idgen"):
        for name in signals.SIGNALS:
            signals.emit(name, tag="tea")
    # Metrics that an earlier test switched on complain of the values that these lack.
    events = [record for record in caplog.records if hasattr(record, "idgen_event")]
    assert [record.message for record in events] == [f"{name} tag=tea" for name in signals.SIGNALS]
    for record, name in zip(events, signals.SIGNALS, strict=True):
        assert record.levelno == signals.LEVELS[name]
        assert record.idgen_event == name  # type: ignore[attr-defined]


def test_warnings_that_are_alike_are_written_once_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is away does not fill the disk with its log."""
    error = OSError("away\nfor a while")
    with caplog.at_level(logging.DEBUG, "django_idgen"):
        for _ in range(50):
            signals.emit("segment_load_failed", tag="cocoa", error=error)
        signals.emit("segment_load_failed", tag="milk", error=error)
        monkeypatch.setattr(signals, "QUIET_SECONDS", 0.0)
        signals.emit("segment_load_failed", tag="cocoa", error=error)
    assert [record.message for record in caplog.records] == [
        "segment_load_failed tag=cocoa error=away for a while",
        "segment_load_failed tag=milk error=away for a while",
        "segment_load_failed tag=cocoa error=away for a while (and 49 more like it)",
    ]


def test_a_receiver_for_every_model_hears_nothing_of_our_rows(server_alias: str) -> None:
    """An audit log whose rows have ids of ours would wait for the grant being written."""
    heard: list[type[Model]] = []

    def audit(sender: type[Model], **_kwargs: Any) -> None:
        heard.append(sender)
        next_id()

    with places.using(server_alias):
        for signal in (pre_save, post_save):
            signal.connect(audit)
        try:
            next_id()
            keeper = generators["default"].keeper
            keeper.registry.renew(keeper.lease, last_tick=keeper.lease.start)
            segments["t"].next_ids(2 * places.STEP)
            folder = Folder.objects.using(server_alias).create(name="f")
            handlers.reset()
        finally:
            for signal in (pre_save, post_save):
                signal.disconnect(audit)
    assert set(heard) == {type(folder)}


def test_a_receiver_may_save_rows_of_ours_and_take_its_time(server_alias: str) -> None:
    """The thread that loads is not kept: ids of other tags, and leases, go on meanwhile."""
    saved: list[int] = []
    go_on = threading.Event()

    def audit(tag: str, **_values: Any) -> None:
        if tag == "slow":
            assert go_on.wait(30)
            saved.append(segments["audit"].next_id())
            saved.append(Folder.objects.using(server_alias).create(name=tag).pk)

    with places.using(server_alias):
        signals.segment_loaded.connect(audit)
        try:
            assert segments["slow"].next_id() == 1
            assert segments["other"].next_id() == 1
            assert next_id()
            go_on.set()
            for thread in threading.enumerate():
                if thread.name == "idgen-signals":
                    thread.join(30)
        finally:
            go_on.set()
            signals.segment_loaded.disconnect(audit)
        assert len(saved) == 2
        assert sessions(server_alias) == 0


def test_a_child_can_log_whatever_its_parent_was_doing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A lock that another thread held at the fork is nobody's in the child."""
    with signals._quiet_lock:
        handlers.forget()
        signals.emit("release_failed", error=OSError("gone"), tag="a-child")
    assert "a-child" in caplog.text
