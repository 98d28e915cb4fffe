"""Records of a namespace that today's settings don't lend from.

In the database that lends today they are what a change of the registry left behind. In
another one they may be the same, or another project's, which must not be stopped: there it
has to be said that the namespace moved from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...core.stored import Stored, StoredBook
from ...process.factory import build_namespace
from ...settings.backends import BackendSettings
from ...settings.config import DEFAULT_LEASES, GeneratorSettings
from .project import Project

__all__ = ["CLOSED", "Stray", "books_of", "strays_of"]

CLOSED = "closed"
"""In the fingerprint of a book that lends to nobody any more."""
FALLBACK = "/fallback"
"""What the namespace of a fallback's second registry has after its name."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A book that today's settings don't lend from, and what stands in it. Frozen."""

    alias: str
    book: StoredBook
    stored: Stored
    is_ours: bool
    """Whether it is in a database that lends today, was closed by us, or is vouched for."""

    @property
    def is_closed(self) -> bool:
        return CLOSED in self.stored.fingerprint


def books_of(project: Project, entry: GeneratorSettings) -> list[StoredBook]:
    """The books of an entry's registry; none if it lends somewhere else."""
    return [*project.registry(entry).books()]


def strays_of(project: Project, entry: GeneratorSettings) -> list[Stray]:
    """Every stray of the namespace of ``entry``, in whichever database can be asked."""
    every = [each for other in project.generators() for each in books_of(project, other)]
    todays = {_whose(book) for book in every}
    lending = books_of(project, entry)
    here = {each.installation() for each in lending} - {""}
    found: dict[object, Stray] = {}
    for alias, book in _recorded(project, entry):
        stored, whose = book.read(), _whose(book)
        if stored is not None and whose not in todays:
            ours = (
                book.installation() in here
                or alias in project.affirmed.moved_from
                or CLOSED in stored.fingerprint
            )
            found.setdefault(whose, Stray(alias, book, stored, ours))
    return _with_other_parts(list(found.values()), lending)


def _with_other_parts(strays: list[Stray], lending: list[StoredBook]) -> list[Stray]:
    """``strays``, with the other half of a fallback counted among ours, wherever it is.

    Not where nothing is to be moved: then it is somebody else's for sure.
    """
    todays = [(book, book.read()) for book in lending]
    ours = [stray for stray in strays if stray.is_ours and not stray.is_closed]
    if not ours and all(stored and _agrees(book, stored) for book, stored in todays):
        return strays
    known = [(book, stored) for book, stored in todays if stored is not None]
    known += [(stray.book, stray.stored) for stray in ours]
    return [
        replace(stray, is_ours=stray.is_ours or any(_is_other_part(stray, *each) for each in known))
        for stray in strays
    ]


def _agrees(book: StoredBook, stored: Stored) -> bool:
    return dict(stored.fingerprint) == dict(book.namespace.fingerprint)


def _is_other_part(stray: Stray, book: StoredBook, stored: Stored) -> bool:
    """Whether the two are those of one fallback: by their names, layouts and worker ids."""
    one, two = stray.book.namespace.name, book.namespace.name
    if FALLBACK not in (one.removeprefix(two), two.removeprefix(one)):
        return False
    if not stray.stored.fingerprint or not stored.fingerprint:
        return False
    ours, theirs = stored.era, stray.stored.era
    apart = ours.workers.stop <= theirs.workers.start or theirs.workers.stop <= ours.workers.start
    return apart and ours.layout == theirs.layout


def _recorded(project: Project, entry: GeneratorSettings) -> Iterator[tuple[str, StoredBook]]:
    names = (entry.namespace, entry.namespace + FALLBACK)
    for alias in project.everywhere():
        if project.has(alias, "NamespaceRecord", "WorkerLease", "Installation"):
            for book in _in(alias, entry, names):
                yield alias, book


def _in(alias: str, entry: GeneratorSettings, names: Iterable[str]) -> list[StoredBook]:
    backend = BackendSettings("idgen_doctor", DEFAULT_LEASES, {"database": alias})
    space = build_namespace(entry)
    made = [backend.build(replace(space, name=name)) for name in names]
    return [book for registry in made for book in registry.books()]


def _whose(book: StoredBook) -> object:
    """Equal for two that are one: the same database under two aliases, or a replica of it."""
    return (book.installation() or book.key[1], book.key[0], book.namespace.name)
