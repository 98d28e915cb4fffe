"""The bounded cache."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from django_idgen.core.bounded import keep_newest


def test_the_oldest_go_first() -> None:
    """One that is put again is new again, and pushes no other out."""
    known: dict[str, int] = {}
    for number, key in enumerate("abcab"):
        keep_newest(known, key, number, most=3)
    assert known == {"c": 2, "a": 3, "b": 4}
    keep_newest(known, "d", 5, most=3)
    assert list(known) == ["a", "b", "d"]


def test_threads_that_put_at_once_raise_nothing() -> None:
    """Nor does the cache grow past its bound by more than their number."""
    known: dict[int, int] = {}
    start = threading.Barrier(8)

    def put(thread: int) -> None:
        start.wait()
        for number in range(2000):
            keep_newest(known, number * (thread + 1) % 97, number, most=10)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(8)))
    assert len(known) <= 10 + 8
