"""What readiness asks of registries and sources: each says whether it answers, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import ConfigurationError, RegistryUnavailable, SegmentUnavailable
from django_idgen.process import handlers
from django_idgen.sources.memory import MemorySource
from tests.places import idgen_on
from tests.redis_servers import RedisFarm, cache_alias
from tests.server_tools import unreachable
from tests.sources.pool.test_project import project


def probes_of(adapter: Any) -> dict[str, Callable[[], None]]:
    found: dict[str, Callable[[], None]] = adapter.probes()
    return found


def registry() -> Any:
    return generators["default"].keeper.registry  # type: ignore[attr-defined]


def test_a_database_that_answers_is_well(place: str) -> None:
    """One probe a database, by its name, for both."""
    for adapter in (segments.allocator().source, registry()):
        ((name, ask),) = probes_of(adapter).items()
        assert name == f"database {place}"
        ask()


def test_a_server_that_refuses_is_not(server_alias: str) -> None:
    """It raises what a grant would."""
    with override_settings(IDGEN=idgen_on(server_alias)), unreachable(server_alias):
        for adapter, error in (
            (segments.allocator().source, SegmentUnavailable),
            (registry(), RegistryUnavailable),
        ):
            (ask,) = probes_of(adapter).values()
            with pytest.raises(error):
                ask()


def test_a_redis_is_asked_by_what_uses_it(farm: RedisFarm, postgres: str) -> None:
    """A pool besides the database behind it; a registry alone. One that is down is told."""
    server = farm.server()
    with cache_alias("probed", f"redis://127.0.0.1:{server.port}/0") as alias:
        with project(alias, postgres) as pool:
            asked = probes_of(pool)
            assert set(asked) == {f"redis {alias}", f"database {postgres}"}
            for ask in asked.values():
                ask()
        leases = {
            "BACKEND": "django_idgen.leases.redis.RedisLeases",
            "OPTIONS": {"alias": alias, "database": postgres},
        }
        with override_settings(IDGEN={"GENERATORS": {"default": {"LEASES": leases}}}):
            ((name, ask),) = probes_of(registry()).items()
            assert name == f"redis {alias}"
            ask()
            server.kill()
            with pytest.raises(RegistryUnavailable):
                ask()
            handlers.reset()


# --- what edits of tags ask of the marks -----------------------------------------------


@pytest.fixture
def marks() -> MemorySource:
    return MemorySource(10)


def test_a_tag_is_opened_once(marks: MemorySource) -> None:
    """With its step and its first id; one that is there stays as it is."""
    assert marks.open_tag("t", step=3, max_id=500)
    assert not marks.open_tag("t", step=9, max_id=900)
    segment = marks.fetch("t")
    assert (segment.start, segment.stop, segment.step) == (500, 503, 3)
    marks.fetch("used")
    assert not marks.open_tag("used", step=9, max_id=900)


def test_a_mark_is_raised_and_never_lowered(marks: MemorySource) -> None:
    """Of a tag that is there, or not yet."""
    marks.fetch("t")
    for to in (700, 30):
        marks.raise_mark("t", to)
        assert marks.max_id("t") == 700
    assert marks.fetch("t").start == 700
    marks.raise_mark("new", 40)
    assert marks.fetch("new").start == 40


def test_a_step_that_can_t_be_opens_no_tag(marks: MemorySource) -> None:
    """And leaves nothing behind."""
    with pytest.raises(ConfigurationError):
        marks.open_tag("t", step=0, max_id=5)
    assert marks.fetch("t").start == 1
