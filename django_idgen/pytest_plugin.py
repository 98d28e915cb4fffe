"""Fixtures for users' tests.

pytest loads it in every project that has this package installed. So nothing of Django is imported
before a fixture is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import FixedIds

__all__ = ["idgen_fixed_ids", "idgen_sequential"]

pytest.register_assert_rewrite("django_idgen.testing.contracts")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Give everything back while the streams of log handlers are open.

    At the interpreter's exit pytest has closed the streams that it captured.
    """
    lifecycle = sys.modules.get("django_idgen.process.lifecycle")
    if lifecycle is not None:
        lifecycle.close_all()


@pytest.fixture
def idgen_fixed_ids() -> Iterator[Callable[..., FixedIds]]:
    """Call it like :func:`django_idgen.testing.fixed_ids`. It lasts until the test ends."""
    from .testing import fixed_ids

    with ExitStack() as stack:
        yield lambda *values, **options: stack.enter_context(fixed_ids(*values, **options))


@pytest.fixture
def idgen_sequential() -> Iterator[FixedIds]:
    """``generators["default"]`` counts up from 1 until the test ends."""
    from .testing import sequential_ids

    with sequential_ids() as ids:
        yield ids
