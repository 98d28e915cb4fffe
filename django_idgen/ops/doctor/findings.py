"""What examinations come to: findings, their fixes, and both in words and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from textwrap import fill
from typing import Any

__all__ = [
    "NOT_EXAMINED",
    "Affirmed",
    "Diagnosis",
    "Finding",
    "Fix",
    "Severity",
    "Unexamined",
    "exit_code",
    "lines",
    "to_json",
]


class Severity(IntEnum):
    """How grave a finding is."""

    INFO = 0
    """Nothing has to be done."""
    WARNING = 1
    """Ids are unique and flow; something will end, or cost more than it has to."""
    ERROR = 2
    """Ids would repeat, or can't be had, or won't be soon."""


@dataclass(frozen=True, slots=True)
class Affirmed:
    """What can't be seen from here, and the caller vouches for. Frozen."""

    others_stopped: bool = False
    """No process of the namespace runs: neither on this host nor on another one."""
    trust_tables: bool = False
    """No id is anywhere (logs, queues, other services) that the tables don't have."""

    moved_from: frozenset[str] = frozenset()
    """Aliases of databases from which the namespaces were moved to others."""

    def given(self) -> frozenset[str]:
        """The options that say so."""
        words = {"--others-stopped": self.others_stopped, "--trust-tables": self.trust_tables}
        return frozenset(name for name, said in words.items() if said)


@dataclass(frozen=True, slots=True)
class Fix:
    """What mends a finding. Frozen."""

    does: str
    """What it will do, for people."""
    apply: Callable[[], str]
    """Does it, and says what was done. Looks again first, in the transaction that changes
    anything. Raises :class:`IdgenError`."""
    needs: frozenset[str] = frozenset()
    """The options without which it is not done: see :class:`Affirmed`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or good to know. Frozen."""

    examination: str
    severity: Severity
    subject: str
    what: str
    why: str
    """Why it matters."""
    todo: str
    """What to do about it, if there is no fix or it is not wanted."""
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Unexamined:
    """Something that could not be looked at. Frozen."""

    examination: str
    subject: str
    why: str


@dataclass(slots=True)
class Diagnosis:
    """What came of all examinations."""

    findings: list[Finding] = field(default_factory=list)
    unexamined: list[Unexamined] = field(default_factory=list)

    @property
    def worst(self) -> Severity:
        return max((finding.severity for finding in self.findings), default=Severity.INFO)

    def add(self, found: Finding | Unexamined) -> None:
        if isinstance(found, Finding):
            self.findings.append(found)
        else:
            self.unexamined.append(found)


# --- for people, and for programs ---------------------------------------------------------

WIDTH = 98
EXIT_CODES = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}
NOT_EXAMINED = 3


def exit_code(diagnosis: Diagnosis, fail_on: Severity) -> int:
    """2 for an error, else 3 if something could not be examined, else 1 for a warning, else 0."""
    worst = diagnosis.worst
    if worst is Severity.ERROR:
        return EXIT_CODES[worst]
    if diagnosis.unexamined:
        return NOT_EXAMINED
    return EXIT_CODES[worst] if worst >= fail_on else 0


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The findings, the gravest first, and what could not be looked at."""
    for severity in sorted(Severity, reverse=True):
        found = [each for each in diagnosis.findings if each.severity is severity]
        if found:
            yield f"{severity.name} ({len(found)})"
            for finding in found:
                yield from _of_finding(finding)
    if diagnosis.unexamined:
        yield f"NOT EXAMINED ({len(diagnosis.unexamined)})"
        for each in diagnosis.unexamined:
            yield f"  {each.subject} [{each.examination}]"
            yield _indented(each.why)
    if not diagnosis.findings and not diagnosis.unexamined:
        yield "All is well."


def _of_finding(finding: Finding) -> Iterator[str]:
    yield f"  {finding.subject} [{finding.examination}]"
    yield _indented(finding.what)
    if finding.why:
        yield _indented(f"Why it matters: {finding.why}")
    if finding.todo:
        yield _indented(f"What to do: {finding.todo}")
    if finding.fix is not None:
        yield _indented(f"{_option(finding.fix)}: {finding.fix.does}")


def _option(fix: Fix) -> str:
    return " ".join(["--fix", *sorted(fix.needs)])


def _indented(text: str) -> str:
    return fill(
        text, WIDTH, initial_indent="    ", subsequent_indent="      ", break_long_words=False
    )


def to_json(diagnosis: Diagnosis, code: int) -> dict[str, Any]:
    """All of it as values for JSON."""
    return {
        "exit_code": code,
        "worst": diagnosis.worst.name.lower(),
        "findings": [_finding_json(finding) for finding in diagnosis.findings],
        "not_examined": [
            {"examination": each.examination, "subject": each.subject, "why": each.why}
            for each in diagnosis.unexamined
        ],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    fix = finding.fix
    return {
        "examination": finding.examination,
        "severity": finding.severity.name.lower(),
        "subject": finding.subject,
        "what": finding.what,
        "why": finding.why,
        "todo": finding.todo,
        "fix": None if fix is None else {"does": fix.does, "needs": sorted(fix.needs)},
    }
