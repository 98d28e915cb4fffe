"""Log records as machines read them: fields with stable names, which JSON can hold."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from django_idgen import generators, signals
from django_idgen.core.errors import LeaseLost
from django_idgen.core.lease import Lease, process_label
from django_idgen.core.segment import Segment
from django_idgen.process import handlers

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


def test_every_event_is_a_line_of_json_with_its_values(lines: StringIO) -> None:
    """No value is lost or can't be written, and none is called as an attribute of records."""
    assert set(EVENTS) == set(signals.SIGNALS)
    for name, values in EVENTS.items():
        signals.emit(name, **values)
    found = written(lines)
    assert [line["idgen_event"] for line in found] == list(EVENTS)
    for line in found:
        assert all(key == "message" or key.startswith("idgen_") for key in line)
        assert all(isinstance(value, (str, int, float, bool)) for value in line.values())


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
    handlers.reset()


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


def test_warnings_left_out_are_a_field(lines: StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of those that were not written can be added up."""
    for _ in range(5):
        signals.emit("segment_load_failed", tag="cocoa", error=ERROR)
    monkeypatch.setattr(signals, "QUIET_SECONDS", 0.0)
    signals.emit("segment_load_failed", tag="cocoa", error=ERROR)
    assert [line.get("idgen_left_out", 0) for line in written(lines)] == [0, 4]
