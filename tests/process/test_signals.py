"""Signals and log records: what the generators tell, and that listening can do no harm."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.db.models import Model
from django.db.models.signals import post_save, pre_save

from django_idgen import generators, next_id, segments, signals
from django_idgen.core.errors import LeaseLost
from django_idgen.core.lease import Lease, process_label
from django_idgen.core.loader import inline_loader
from django_idgen.core.segment import Segment
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.process import maps
from django_idgen.sources.memory import MemorySource
from tests import places
from tests.app.models import Folder
from tests.server_tools import sessions


@pytest.fixture
def tea() -> Iterator[Any]:
    allocator = SegmentAllocator(
        MemorySource(default_step=10), inline_loader(), on_event=signals.emit
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
    """What it raises is logged; the caller gets its id, and the other receivers hear of it.

    They hear the values that the signal documents.
    """
    with caplog.at_level(logging.ERROR, "django_idgen"):
        assert tea.next_id() == 1
    assert "a bug in the user's receiver" in caplog.text
    (event,) = heard
    assert (event["sender"], event["tag"], event["segment"].start) == ("django_idgen", "tea", 1)


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


def test_warnings_that_are_alike_are_written_once_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is away does not fill the disk with its log; a field has the number."""
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
    assert [getattr(record, "idgen_left_out", 0) for record in caplog.records] == [0, 0, 49]


def test_no_warning_of_one_generator_silences_that_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two generators that issue ids without a lease write two lines, and so do two quotas."""
    for name, key in (("ids_degraded", "namespace"), ("lease_quota_near", "generator")):
        for whose in ("one", "two", "one"):
            signals.emit(name, **{key: whose})
    assert [record.message for record in caplog.records] == [
        f"{name} {key}={whose}"
        for name, key in (("ids_degraded", "namespace"), ("lease_quota_near", "generator"))
        for whose in ("one", "two")
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
            maps.reset()
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
        maps.forget()
        signals.emit("release_failed", error=OSError("gone"), tag="a-child")
    assert "a-child" in caplog.text


# --- log records as machines read them: fields with stable names, which JSON can hold ---


LEASE = Lease("shop", 7, "secret-token", 100, 280, 3)
SEGMENT = Segment("orders", 1, 1001, 1000)
ERROR = LeaseLost("It is\ngone.")
EVENTS: dict[str, dict[str, object]] = {
    "lease_acquired": {"lease": LEASE, "holder": "web-1:42 gunicorn", "ahead_ticks": 0},
    "lease_renewed": {"lease": LEASE},
    "lease_lost": {"lease": LEASE, "error": ERROR},
    "lease_released": {"lease": LEASE, "known": True},
    "release_failed": {"lease": LEASE, "error": ERROR},
    "renewal_failed": {"lease": None, "error": ERROR},
    "lease_quota_near": {"generator": "default", "client": "shop", "held": 410, "most": 512},
    "clock_skewed": {"offset_us": -12_000_000, "source": "wall"},
    "clock_moved_backwards": {"behind_ticks": 5},
    "worker_changed": {"lease": LEASE, "behind_seconds": float("inf")},
    "ids_degraded": {"namespace": "default", "worker": 1023, "ids": 1, "error": ERROR},
    "segment_loaded": {"tag": "orders", "segment": SEGMENT, "seconds": 0.25},
    "segment_load_failed": {"tag": "orders", "error": ERROR},
    "segment_paused": {"tag": "orders"},
    "segment_waited": {"tag": "orders", "seconds": 0.5},
    "segment_given_back": {"tag": "orders", "ids": 12},
    "segment_skipped": {
        "tag": "orders", "database": "default", "start": 1, "stop": 9, "why": {"a": "set"},
    },
    "pool_unavailable": {"alias": "idgen", "error": ERROR},
    "pool_available": {"alias": "idgen"},
    "pool_dropped": {"tag": "orders", "ids": 12},
}  # fmt: skip
"""The values of every signal, as its documentation names them."""


class JsonFormatter(logging.Formatter):
    """What a project's own one does: all that was passed as ``extra``, on one line."""

    own = frozenset(vars(logging.makeLogRecord({})))

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in vars(record).items() if key not in self.own}
        return json.dumps({"message": record.getMessage(), **extra}, allow_nan=False)


@pytest.fixture
def lines() -> Iterator[StringIO]:
    """What a handler with a JSON formatter writes of the app's logger."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("django_idgen")
    level, quiet = logger.level, dict(signals._quiet)
    signals._quiet.clear()
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)
    signals._quiet.clear()
    signals._quiet.update(quiet)


def written(lines: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_every_event_is_a_line_of_json_with_its_values(
    lines: StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    """No value is lost or can't be written, and none is called as an attribute of records.

    The message begins with the event's name, and has its level.
    """
    assert set(EVENTS) == set(signals.SIGNALS) == set(signals.LEVELS)
    for name, values in EVENTS.items():
        signals.emit(name, **values)
    # Metrics that an earlier test switched on may have a word of their own.
    records = [record for record in caplog.records if hasattr(record, "idgen_event")]
    for record, name in zip(records, EVENTS, strict=True):
        assert (record.levelno, record.message.split()[0]) == (signals.LEVELS[name], name)
    found = written(lines)
    assert [line["idgen_event"] for line in found] == list(EVENTS)
    for line in found:
        assert all(key == "message" or key.startswith("idgen_") for key in line)
        assert all(isinstance(value, (str, int, float, bool)) for value in line.values())


def test_what_may_be_lost_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """An outage has no traceback, of which an operator learns nothing; a bug has one."""
    for name in ("lease_lost", "renewal_failed", "segment_load_failed", "ids_degraded"):
        signals.emit(name, **{**EVENTS[name], "error": ERROR})
    assert not [record.message for record in caplog.records if record.exc_info]
    signals.emit("lease_lost", lease=LEASE, error=ZeroDivisionError())
    assert caplog.records[-1].exc_info


def test_a_lease_is_told_by_its_namespace_and_worker_id(lines: StringIO) -> None:
    """And never with the token, which would let a reader of logs renew it."""
    signals.emit("lease_lost", lease=LEASE, error=ERROR)
    (line,) = written(lines)
    assert line == {
        "message": line["message"],
        "idgen_event": "lease_lost",
        "idgen_namespace": "shop",
        "idgen_worker": 7,
        "idgen_lease_start": 100,
        "idgen_lease_until": 280,
        "idgen_lease_generation": 3,
        "idgen_error": "LeaseLost",
        "idgen_error_message": "It is gone.",
    }
    assert "secret-token" not in lines.getvalue()


def test_the_log_says_who_took_a_worker_id_and_from_which_tick_on(lines: StringIO) -> None:
    """At level INFO, for those who ask later who made an id: nothing else keeps it."""
    logging.getLogger("django_idgen").setLevel(logging.INFO)
    generator = generators["default"]
    generator.next_id()
    keeper: Any = generator.keeper
    (line,) = [each for each in written(lines) if each["idgen_event"] == "lease_acquired"]
    assert line["idgen_namespace"] == "default"
    assert line["idgen_worker"] == keeper.lease.worker
    assert line["idgen_lease_start"] == keeper.lease.start
    assert line["idgen_holder"] == process_label()
    for words in (f"worker={keeper.lease.worker}", f"start={keeper.lease.start}", process_label()):
        assert words in line["message"]
    maps.reset()


def test_a_segment_is_told_by_its_ids(lines: StringIO) -> None:
    """With the seconds that the load took."""
    signals.emit("segment_loaded", tag="orders", segment=SEGMENT, seconds=0.25)
    (line,) = written(lines)
    del line["message"]
    assert line == {
        "idgen_event": "segment_loaded",
        "idgen_tag": "orders",
        "idgen_segment_start": 1,
        "idgen_segment_stop": 1001,
        "idgen_segment_step": 1000,
        "idgen_seconds": 0.25,
    }
