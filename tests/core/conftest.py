"""What holds for the core's tests where they run alone, without the whole suite's fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import freezegun
import pytest
import time_machine

from tests.core.running import Running
from tests.tiers import load_hypothesis_profile

load_hypothesis_profile()


@pytest.fixture(autouse=True)
def _all_closed() -> Iterator[None]:
    yield
    while Running.made:
        Running.made.pop().generator.close()


@pytest.fixture(params=["freezegun", "time_machine"])
def frozen(request: pytest.FixtureRequest) -> AbstractContextManager[Any]:
    """A block in which a package for tests has time stand still in 1999."""
    if request.param == "freezegun":
        return freezegun.freeze_time("1999-01-01")
    return time_machine.travel(datetime(1999, 1, 1, tzinfo=UTC), tick=False)
