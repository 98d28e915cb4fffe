"""The findings of examinations, their fixes, and how both are shown as text and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from textwrap import fill
from typing import Any

OTHERS_STOPPED = "--others-stopped"
"""The operator asserts that no process of the namespace runs on any host."""
TRUST_TABLES = "--trust-tables"
"""The operator asserts that every id outside of the tables (logs, queues) is in them, too."""
NOT_EXAMINED = 3
"""The exit code if something could not be examined."""
WIDTH = 98


class Severity(IntEnum):
    """How serious a finding is; also the exit code for it."""

    INFO = 0
    """No action is needed."""
    WARNING = 1
    """Ids are unique and available, but something runs out or costs more than necessary."""
    ERROR = 2
    """Ids would repeat, or are unavailable now or soon."""


@dataclass(frozen=True, slots=True)
class Fix:
    """How the doctor fixes a finding."""

    does: str
    """What it will do, for the operator."""
    apply: Callable[[], str]
    """Applies the fix and describes what it did. It checks again first, in the transaction
    that makes the change. Raises :class:`IdgenError`."""
    needs: frozenset[str] = frozenset()
    """The options that the operator has to give: OTHERS_STOPPED, TRUST_TABLES."""


@dataclass(slots=True)
class Finding:
    """A problem, or something worth knowing."""

    severity: Severity
    subject: str
    what: str
    why: str
    """Why it matters."""
    todo: str = ""
    """What the operator can do without the fix."""
    fix: Fix | None = None
    examination: str = ""


@dataclass(slots=True)
class Unexamined:
    """Something that could not be examined."""

    subject: str
    why: str
    examination: str = ""


@dataclass(slots=True)
class Diagnosis:
    """The results of all examinations."""

    findings: list[Finding] = field(default_factory=list)
    unexamined: list[Unexamined] = field(default_factory=list)

    @property
    def worst(self) -> Severity:
        return max((finding.severity for finding in self.findings), default=Severity.INFO)

    def add(self, examination: str, found: Finding | Unexamined) -> None:
        found.examination = examination
        if isinstance(found, Finding):
            self.findings.append(found)
        else:
            self.unexamined.append(found)


def exit_code(diagnosis: Diagnosis, fail_on: Severity) -> int:
    """2 for an error, else 3 if something could not be examined, else 1 for a warning, else 0."""
    worst = diagnosis.worst
    if worst is not Severity.ERROR and diagnosis.unexamined:
        return NOT_EXAMINED
    return worst if worst >= fail_on else Severity.INFO


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The findings, most serious first, then what could not be examined."""
    for severity in sorted(Severity, reverse=True):
        found = [each for each in diagnosis.findings if each.severity is severity]
        if found:
            yield f"{severity.name} ({len(found)})"
        for finding in found:
            yield f"  {finding.subject} [{finding.examination}]"
            yield _indented(finding.what)
            if finding.why:
                yield _indented(f"Why it matters: {finding.why}")
            if finding.todo:
                yield _indented(f"What to do: {finding.todo}")
            if finding.fix is not None:
                options = " ".join(["--fix", *sorted(finding.fix.needs)])
                yield _indented(f"{options}: {finding.fix.does}")
    if diagnosis.unexamined:
        yield f"NOT EXAMINED ({len(diagnosis.unexamined)})"
        for each in diagnosis.unexamined:
            yield f"  {each.subject} [{each.examination}]"
            yield _indented(each.why)
    if not diagnosis.findings and not diagnosis.unexamined:
        yield "All is well."


def _indented(text: str) -> str:
    return fill(
        text, WIDTH, initial_indent="    ", subsequent_indent="      ", break_long_words=False
    )


def to_json(diagnosis: Diagnosis, code: int) -> dict[str, Any]:
    return {
        "exit_code": code,
        "worst": diagnosis.worst.name.lower(),
        "findings": [
            {
                "examination": each.examination,
                "severity": each.severity.name.lower(),
                "subject": each.subject,
                "what": each.what,
                "why": each.why,
                "todo": each.todo,
                "fix": each.fix and {"does": each.fix.does, "needs": sorted(each.fix.needs)},
            }
            for each in diagnosis.findings
        ],
        "not_examined": [
            {"examination": each.examination, "subject": each.subject, "why": each.why}
            for each in diagnosis.unexamined
        ],
    }
