"""What commands ask at a terminal."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from io import StringIO

import pytest

from django_idgen.management.commands.idgen_adopt import Command


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The user's end of a real terminal, which is the standard input."""
    user, device = pty.openpty()
    with os.fdopen(device) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield user
    os.close(user)


@pytest.mark.parametrize(
    ("typed", "goes_on"), [(b"yes\n", True), (b"no\n", False), (b"\x04", False)]
)
def test_an_adoption_begins_with_a_yes_only(terminal: int, typed: bytes, goes_on: bool) -> None:
    """Control-D in place of an answer is a no, and no traceback."""
    os.write(terminal, typed)
    said = StringIO()
    command = Command(stdout=said)
    assert command._may_go_on({"dry_run": False, "yes": False}) is goes_on
    assert ("Nothing was done." in said.getvalue()) is not goes_on
