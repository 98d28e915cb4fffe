"""What the doctor says: for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any

from .examinations import Diagnosis
from .findings import Finding, Fix, Severity

__all__ = ["EXIT_CODES", "exit_code", "lines", "to_json"]

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
