"""Which of the free worker ids a newcomer gets. Pure: the registry answers the questions.

The id that the holder had last comes first, so that a restarted process goes on
under its old id; then some random tries, since newcomers that choose alike
queue for one row; then a scan, since random tries alone fail about every fourth
time when 900 of 1024 ids are held.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable

from .errors import NoFreeWorker
from .lease import Namespace

__all__ = ["RANDOM_TRIES", "choose_worker"]

RANDOM_TRIES = 10


def choose_worker(
    namespace: Namespace,
    *,
    previous: Iterable[int],
    avoid: int | None,
    is_held: Callable[[int], bool],
    held: Callable[[], Collection[int]],
    below: Callable[[int], int] = secrets.randbelow,
) -> int:
    """A free worker id of ``namespace.workers``, never ``avoid``.

    ``previous`` are the ids that the holder had before, the latest first.
    ``is_held`` looks one id up, ``held`` all that are held (called at most once,
    only if the tries fail). ``below(n)`` gives a random whole number of 0..n-1;
    the default is not repeated by forked children.

    Raises :class:`NoFreeWorker`. As thread-safe as the functions given.
    """
    workers = namespace.workers
    for worker in previous:
        if worker in workers and worker != avoid and not is_held(worker):
            return worker
    # A small range is scanned at once: tries would only ask about the same ids again.
    for _ in range(RANDOM_TRIES if len(workers) > RANDOM_TRIES else 0):
        worker = workers[below(len(workers))]
        if worker != avoid and not is_held(worker):
            return worker
    return _scan(namespace, frozenset(held()), avoid, below(len(workers)))


def _scan(namespace: Namespace, held: Collection[int], avoid: int | None, first: int) -> int:
    workers = namespace.workers
    for offset in range(len(workers)):
        worker = workers[(first + offset) % len(workers)]
        if worker != avoid and worker not in held:
            return worker
    raise NoFreeWorker(namespace.name, workers)
