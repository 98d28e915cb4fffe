"""Examination ``services``: whether services over HTTP lend their ids to this project."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial

from ...core.errors import ConfigurationError, IdgenError, SegmentRefused, one_line
from ...process import maps
from ...process.maps import registries
from ...process.tags import source_behind_pool
from .findings import Finding, Severity
from .project import Project


def examine(project: Project) -> Iterator[Finding]:
    """A finding for each generator and each field's tag that a service refuses.

    Where no service answers, the rest of the tags is not asked for: each would take the timeout.
    """
    for entry in project.generators:
        yield from _refused(f"generator {entry.alias!r}", registries[entry.alias].check_access)
    source = source_behind_pool()
    for tag in sorted(maps.segments.fields):
        error = yield from _refused(f"tag {tag!r}", partial(source.check_access, tag))
        if error is not None and not isinstance(error, SegmentRefused):
            return


def _refused(
    subject: str, check: Callable[[], None]
) -> Generator[Finding, None, IdgenError | None]:
    try:
        check()
    except IdgenError as error:
        yield Finding(
            Severity.ERROR,
            subject,
            one_line(error),
            "Processes that start can't take its ids.",
            "Give this project the settings that the service has."
            if isinstance(error, ConfigurationError)
            else "Make the tag in the service, or give the access token the right: 'manage.py "
            "idgen_token' there.",
        )
        return error
    return None
