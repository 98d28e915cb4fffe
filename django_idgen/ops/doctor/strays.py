"""Records of a namespace that today's settings don't lend from.

In the database that lends today they are what a change of the registry left behind. In
another one they may be the same, or another project's, which must not be stopped: there it
has to be said that the namespace moved from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...core.ledger import Ledger, Stored
from ...process.factory import build_namespace
from ...settings.backends import BackendSettings
from ...settings.config import DEFAULT_LEASES, GeneratorSettings
from .project import Project

__all__ = ["CLOSED", "Stray", "ledgers_of", "strays_of"]

CLOSED = "closed"
"""In the fingerprint of a ledger that lends to nobody any more."""
FALLBACK = "/fallback"
"""What the namespace of a fallback's second registry has after its name."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A ledger that today's settings don't lend from, and what stands in it. Frozen."""

    alias: str
    ledger: Ledger
    stored: Stored
    is_ours: bool
    """Whether it is in a database that lends today, was closed by us, or is vouched for."""

    @property
    def is_closed(self) -> bool:
        return CLOSED in self.stored.fingerprint


def ledgers_of(project: Project, entry: GeneratorSettings) -> list[Ledger]:
    """The ledgers of an entry's registry; none if it lends somewhere else."""
    return [*project.registry(entry).ledgers()]


def strays_of(project: Project, entry: GeneratorSettings) -> list[Stray]:
    """Every stray of the namespace of ``entry``, in whichever database can be asked."""
    every = [each for other in project.generators() for each in ledgers_of(project, other)]
    todays = {_whose(ledger) for ledger in every}
    lending = ledgers_of(project, entry)
    here = {each.installation() for each in lending} - {""}
    found: dict[object, Stray] = {}
    for alias, ledger in _recorded(project, entry):
        stored, whose = ledger.read(), _whose(ledger)
        if stored is not None and whose not in todays:
            ours = (
                ledger.installation() in here
                or alias in project.affirmed.moved_from
                or CLOSED in stored.fingerprint
            )
            found.setdefault(whose, Stray(alias, ledger, stored, ours))
    return _with_other_parts(list(found.values()), lending)


def _with_other_parts(strays: list[Stray], lending: list[Ledger]) -> list[Stray]:
    """``strays``, with the other half of a fallback counted among ours, wherever it is.

    Not where nothing is to be moved: then it is somebody else's for sure.
    """
    todays = [(ledger, ledger.read()) for ledger in lending]
    ours = [stray for stray in strays if stray.is_ours and not stray.is_closed]
    if not ours and all(stored and _agrees(ledger, stored) for ledger, stored in todays):
        return strays
    known = [(ledger, stored) for ledger, stored in todays if stored is not None]
    known += [(stray.ledger, stray.stored) for stray in ours]
    return [
        replace(stray, is_ours=stray.is_ours or any(_is_other_part(stray, *each) for each in known))
        for stray in strays
    ]


def _agrees(ledger: Ledger, stored: Stored) -> bool:
    return dict(stored.fingerprint) == dict(ledger.namespace.fingerprint)


def _is_other_part(stray: Stray, ledger: Ledger, stored: Stored) -> bool:
    """Whether the two are those of one fallback: by their names, layouts and worker ids."""
    one, two = stray.ledger.namespace.name, ledger.namespace.name
    if FALLBACK not in (one.removeprefix(two), two.removeprefix(one)):
        return False
    if not stray.stored.fingerprint or not stored.fingerprint:
        return False
    ours, theirs = stored.era, stray.stored.era
    apart = ours.workers.stop <= theirs.workers.start or theirs.workers.stop <= ours.workers.start
    return apart and ours.layout == theirs.layout


def _recorded(project: Project, entry: GeneratorSettings) -> Iterator[tuple[str, Ledger]]:
    names = (entry.namespace, entry.namespace + FALLBACK)
    for alias in project.everywhere():
        if project.has(alias, "NamespaceRecord", "WorkerLease", "Installation"):
            for ledger in _in(alias, entry, names):
                yield alias, ledger


def _in(alias: str, entry: GeneratorSettings, names: Iterable[str]) -> list[Ledger]:
    backend = BackendSettings("idgen_doctor", DEFAULT_LEASES, {"database": alias})
    space = build_namespace(entry)
    made = [backend.build(replace(space, name=name)) for name in names]
    return [ledger for registry in made for ledger in registry.ledgers()]


def _whose(ledger: Ledger) -> object:
    """Equal for two that are one: the same database under two aliases, or a replica of it."""
    return (ledger.installation() or ledger.key[1], ledger.key[0], ledger.namespace.name)
