"""The findings of examinations, their fixes, and how both are shown as text and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from textwrap import fill
from typing import Any

from django.core.checks import INFO, CheckMessage, Warning  # noqa: A004

from ...core.errors import one_line

OTHERS_STOPPED = "--others-stopped"
"""The operator asserts that no process of the namespace runs on any host."""
TRUST_TABLES = "--trust-tables"
"""The operator asserts that every id outside of the tables (logs, queues) is in them, too."""
NOT_EXAMINED = 3
"""The exit code if something could not be examined."""
WIDTH = 98
_UNSEEN = "django_idgen.W020"


class Severity(IntEnum):
    """How serious a finding is; from INFO on also the exit code for it."""

    NOT_EXAMINED = -1
    """Something did not answer, or refused."""
    INFO = 0
    """Only the operator knows whether anything has to be done."""
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
    """A problem, or something that the operator has to decide."""

    severity: Severity
    subject: str
    what: str
    why: str = ""
    """Why it matters."""
    todo: str = ""
    """What the operator can do without the fix."""
    fix: Fix | None = None
    check: str = ""
    """The id of the system check that found it, too."""
    examination: str = ""


@dataclass(slots=True)
class Diagnosis:
    """The results of all examinations, the most serious first."""

    assurances: frozenset[str] = frozenset()
    """The options that the operator gave."""
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each examination took."""

    @property
    def worst(self) -> Severity:
        return max((each.severity for each in self.findings), default=Severity.INFO)

    def add(self, examination: str, found: Finding | CheckMessage) -> None:
        if isinstance(found, CheckMessage):
            if found.is_silenced():
                return
            found = finding_of(found)
        found.examination = examination
        self.findings.append(found)

    def of(self, severity: Severity) -> list[Finding]:
        return [each for each in self.findings if each.severity is severity]


def not_examined(subject: str, why: Exception | str) -> CheckMessage:
    """The message about something that could not be examined."""
    what = why if isinstance(why, str) else one_line(why)
    return Warning(f"It could not be examined: {what}", obj=subject, id=_UNSEEN)


def finding_of(message: CheckMessage) -> Finding:
    """The finding that a system check reports."""
    severity = Severity.WARNING
    if message.id == _UNSEEN:
        severity = Severity.NOT_EXAMINED
    elif message.is_serious():
        severity = Severity.ERROR
    elif message.level <= INFO:
        severity = Severity.INFO
    check = str(message.id)
    subject = str(message.obj or check)
    return Finding(severity, subject, message.msg, todo=message.hint or "", check=check)


def exit_code(diagnosis: Diagnosis, fail_on: Severity) -> int:
    """2 for an error, else 3 if something could not be examined, else 1 for a warning, else 0."""
    worst = diagnosis.worst
    if worst is not Severity.ERROR and diagnosis.of(Severity.NOT_EXAMINED):
        return NOT_EXAMINED
    return worst if worst >= fail_on else 0


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The findings, most serious first, what could not be examined, and how long it took."""
    for severity in sorted(Severity, reverse=True):
        if found := diagnosis.of(severity):
            yield f"{severity.name.replace('_', ' ')} ({len(found)})"
        for finding in found:
            yield f"  {finding.subject} [{f'{finding.examination} {finding.check}'.strip()}]"
            yield _indented(finding.what)
            if finding.why:
                yield _indented(f"Why it matters: {finding.why}")
            if finding.todo:
                yield _indented(f"What to do: {finding.todo}")
            if finding.fix is not None:
                options = " ".join(["--fix", *sorted(finding.fix.needs)])
                yield _indented(f"{options}: {finding.fix.does}")
    if not diagnosis.findings:
        yield "All is well."
    longest = max(diagnosis.seconds, key=lambda name: diagnosis.seconds[name])
    yield (
        f"Examined in {sum(diagnosis.seconds.values()):.1f} s; the longest was {longest!r}, "
        f"{diagnosis.seconds[longest]:.1f} s."
    )


def _indented(text: str) -> str:
    return fill(
        text, WIDTH, initial_indent="    ", subsequent_indent="      ", break_long_words=False
    )


def to_json(diagnosis: Diagnosis, code: int) -> dict[str, Any]:
    return {
        "exit_code": code,
        "worst": max(diagnosis.worst, Severity.INFO).name.lower(),
        "findings": [
            {
                "examination": each.examination,
                "check": each.check,
                "severity": each.severity.name.lower(),
                "subject": each.subject,
                "what": each.what,
                "why": each.why,
                "todo": each.todo,
                "fix": each.fix and {"does": each.fix.does, "needs": sorted(each.fix.needs)},
            }
            for each in diagnosis.findings
            if each.severity is not Severity.NOT_EXAMINED
        ],
        "not_examined": [
            {"examination": each.examination, "subject": each.subject, "why": each.what}
            for each in diagnosis.of(Severity.NOT_EXAMINED)
        ],
        "seconds": {name: round(taken, 3) for name, taken in diagnosis.seconds.items()},
    }
