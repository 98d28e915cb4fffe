"""The database's book of a registry that can forget, where a command is the first to use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_idgen.core.book import SubLease, change_sub_lease
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.layout import BitLayout
from django_idgen.core.lease import Mark, Namespace
from django_idgen.core.stored import Era, Successor
from django_idgen.leases.memory import MemoryMarks, MemoryStore
from django_idgen.leases.root import Kept, RootedBook, SubLessee

LAYOUT = BitLayout((("time", 41), ("worker", 10), ("sequence", 12)), tick_us=1000, epoch_us=0)
NOW, WINDOW, STRIDE = 10_000_000, 1000, 5000
SPACE = Namespace(
    "ids",
    0,
    LAYOUT.tick_us,
    LAYOUT.max_ticks,
    range(16),
    WINDOW,
    10,
    {**LAYOUT.fingerprint(), "workers": [0, 16]},
)


class Server(SubLessee):
    """A registry that has nothing."""

    namespace = SPACE
    described = "server"

    def install(self, sub_lease: SubLease) -> object:
        raise NotImplementedError

    def restart(self, installation: str, incarnation: str) -> object:
        raise NotImplementedError

    def enter(self, installation: str, generation: int) -> None:
        raise NotImplementedError

    def kept(self, installation: str) -> Kept | None:
        return None


def claim(book: RootedBook) -> None:
    book.claim(lambda _stored, _now_us: Era(LAYOUT, range(20, 21), 1))


def rewrite(book: RootedBook) -> None:
    book.rewrite(lambda stored, _now_us: Successor.after(stored, stored.highest, SPACE.workers))


@pytest.mark.parametrize("use", [claim, rewrite])
def test_it_lays_the_fence_that_a_sub_lease_needs(use: Callable[[RootedBook], Any]) -> None:
    """I1, L6, L7: two lost updates of the ceiling lie below it, whichever call mends the loss."""

    def lost() -> MemoryStore:
        marks = MemoryMarks()
        marks.book("ids").by_worker[3] = Mark(3, "", 0, 5)
        return MemoryStore("ids", marks, SYSTEM_CLOCK, lambda: NOW * LAYOUT.tick_us)

    expected = lost().run(
        lambda book: change_sub_lease(book, SPACE, lambda sub_lease: sub_lease, stride=STRIDE)
    )
    store = lost()
    use(RootedBook(store, Server(), STRIDE))
    record = store.run(lambda book: book.record())
    assert record is not None
    assert record.fence == expected.fence >= NOW + WINDOW + 2 * STRIDE
