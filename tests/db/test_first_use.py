"""First uses that meet: the second thread comes while the first one is making what both want."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_idgen import generators, segments
from django_idgen.core import segment_allocator
from django_idgen.leases.database import DatabaseLeases
from django_idgen.process import factory
from django_idgen.testing import no_registry
from tests.leases.server.shop import SHOP
from tests.segment_tools import LIMIT


class Meeting:
    """Holds the first thread up inside ``module.name`` until a second one has come.

    It has come when it stands before the lock of ``owner``, or makes one more itself.
    """

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, module: Any, name: str) -> None:
        self.made: list[Any] = []
        self._make = getattr(module, name)
        self._lock = owner._lock
        self._second: threading.Thread | None = None
        self._came = threading.Event()
        patch.setattr(owner, "_lock", self)
        patch.setattr(module, name, self.make)

    def asked_by_two(self, ask: Callable[[], Any]) -> list[Any]:
        """What the two were given."""
        got: list[Any] = []
        self._second = threading.Thread(target=lambda: got.append(ask()))
        got.append(ask())
        self._second.join(LIMIT)
        assert len(got) == 2
        return got

    def make(self, *args: Any, **options: Any) -> Any:
        assert self._second is not None
        if threading.current_thread() is self._second:
            self._came.set()
        else:
            self._second.start()
            assert self._came.wait(LIMIT)
        self.made.append(self._make(*args, **options))
        return self.made[-1]

    def __enter__(self) -> None:
        if threading.current_thread() is self._second:
            self._came.set()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with no_registry():
        yield


def in_generators() -> tuple[Any, Any, str, Callable[[], Any]]:
    return generators, factory, "build_generator", lambda: generators["default"]


def in_segments() -> tuple[Any, Any, str, Callable[[], Any]]:
    return segments, factory, "build_allocator", lambda: segments["order"]


def in_tags() -> tuple[Any, Any, str, Callable[[], Any]]:
    return segments.allocator().segments, segment_allocator, "_GENERATOR", lambda: segments["order"]


def in_stores() -> tuple[Any, Any, str, Callable[[], Any]]:
    found: Any = DatabaseLeases(SHOP)._stores
    return found, found, "_make", found.current


@pytest.mark.parametrize("place", [in_generators, in_segments, in_tags, in_stores])
def test_two_threads_at_first_use_share_one(
    place: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard 29: one per process and alias, or both would give out the same ids."""
    owner, module, name, ask = place()
    meeting = Meeting(monkeypatch, owner, module, name)
    one, other = meeting.asked_by_two(ask)
    assert one is other
    assert len(meeting.made) == 1
