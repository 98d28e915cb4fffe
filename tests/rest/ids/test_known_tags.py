"""Whether there is a tag: right on every database, and asked of none in the hot path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_idgen import segments
from django_idgen.core.errors import ConfigurationError, InvalidTag, SegmentUnavailable
from django_idgen.models import LeafAlloc
from django_idgen.process import maps
from django_idgen.rest import tags
from django_idgen.rest.tags import UnknownTag, check_known, is_known, is_there
from tests.places import empty_place, idgen_on, place
from tests.rest.forgetting import forget

__all__ = ["empty_place", "place"]


class World:
    """Databases that hold what they are told to, or are away, and a clock that is set by hand."""

    keeps_rows = True
    aliases: tuple[str, ...] = ("a",)

    def __init__(self) -> None:
        self.seconds = 0.0
        self.there: set[tuple[str, str]] = set()
        self.away: set[str] = set()
        self.asked: list[str] = []

    def stopwatch(self) -> float:
        return self.seconds

    def route(self, _tag: str) -> tuple[str, ...]:
        return self.aliases

    def is_in(self, alias: str, tag: str) -> bool:
        self.asked.append(tag)
        if alias in self.away:
            raise SegmentUnavailable("away")
        return (alias, tag) in self.there


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    monkeypatch.setattr(tags, "_is_in", world.is_in)
    monkeypatch.setattr(tags, "source_behind_pool", lambda: world)
    monkeypatch.setattr(tags, "SYSTEM_CLOCK", world)
    with override_settings(IDGEN={}):
        yield world


# --- on real databases --------------------------------------------------------------


def test_it_knows_what_the_database_has(place: str) -> None:
    """A tag made by hand at once, one that was used, and none that is not there.

    What is known costs no query: in use for ever, found for a minute.
    """
    with pytest.raises(UnknownTag) as raised:
        check_known("made")
    assert raised.value.status_code == 404
    assert "'made'" in str(raised.value)
    LeafAlloc.objects.using(place).create(biz_tag="made")
    check_known("made")
    segments["used"].next_id()
    check_known("used")
    with CaptureQueriesContext(connections[place]) as queries:
        for _ in range(3):
            check_known("used")
            check_known("made")
            assert is_known("made")
    assert not queries.captured_queries
    forget()
    check_known("used")
    for other in ("Made", "made/", "mad", "%", "mad_", "USED"):
        with pytest.raises(UnknownTag):
            check_known(other)
    assert {*LeafAlloc.objects.using(place).values_list("pk", flat=True)} <= {"made", "used"}


def test_a_database_without_tables_has_no_tags(empty_place: str) -> None:
    """They are made, as at the first id; so is the file beside a SQLite database."""
    with override_settings(IDGEN=idgen_on(empty_place)), pytest.raises(UnknownTag):
        check_known("orders")


@pytest.mark.django_db
def test_the_database_that_a_router_names_is_asked(settings: Any) -> None:
    """Not another one that happens to have such a tag."""
    options = {"router": f"{__name__}.by_name"}
    settings.IDGEN = {"SEGMENTS": {"SOURCE": {"OPTIONS": options}}}
    LeafAlloc.objects.using("default").create(biz_tag="here")
    LeafAlloc.objects.using("default").create(biz_tag="lost")
    check_known("here")
    for tag in ("lost", "nowhere"):
        with pytest.raises((SegmentUnavailable, ConfigurationError, UnknownTag)) as raised:
            check_known(tag)
        assert isinstance(raised.value, ConfigurationError) == (tag == "lost")


def by_name(tag: str) -> str:
    return "no-such-alias" if tag == "lost" else "default"


def test_in_a_test_that_allows_no_database_there_are_no_tags() -> None:
    """But those that the test puts there itself."""

    class Fixed:
        def next_id(self) -> int:
            return 7

    with override_settings(IDGEN={}):
        with pytest.raises(UnknownTag):
            check_known("orders")
        with segments.override("orders", Fixed()):  # type: ignore[arg-type]
            check_known("orders")


def test_a_database_that_is_dead_is_passed_over_if_another_one_knows(world: World) -> None:
    """If none of the others does, nobody can say."""
    world.there, world.away = {("b", "orders")}, {"a"}
    for aliases, found in ((("c",), False), (("a", "b"), True)):
        world.aliases = aliases
        assert is_there("orders") is found
    world.aliases = ("a", "c")
    with pytest.raises(SegmentUnavailable, match="away"):
        is_there("others")


# --- what is remembered ------------------------------------------------------------------


def test_a_tag_that_is_not_there_is_asked_for_each_time(world: World) -> None:
    """So that one that was just made works at once."""
    assert not is_there("t")
    world.there.add(("a", "t"))
    assert is_there("t")
    assert is_there("t")
    assert world.asked == ["t", "t"]
    world.seconds += tags.TRUSTED
    assert not is_known("t")
    assert is_there("t")
    assert world.asked == ["t", "t", "t"]


def test_while_nobody_can_be_asked_what_was_found_is_believed(world: World) -> None:
    """And of the rest it is said that nobody can be asked."""
    world.there.add(("a", "t"))
    assert is_there("t")
    world.away.add("a")
    world.seconds += 10 * tags.TRUSTED
    assert is_there("t")
    with pytest.raises(SegmentUnavailable):
        is_there("u")
    world.seconds = 0.0
    assert is_known("t")
    maps.reset()  # other settings, perhaps another database
    assert not is_known("t")
    with pytest.raises(SegmentUnavailable):
        is_there("t")


def test_only_so_many_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first."""
    monkeypatch.setattr(tags, "MOST_KNOWN", 3)
    world.there = {("a", tag) for tag in "abcd"}
    assert all(is_there(tag) for tag in "abcd")
    assert [tag for tag in "abcd" if is_known(tag)] == ["b", "c", "d"]


def test_what_can_not_be_a_tag_is_said(settings: Any) -> None:
    """Whether tags may be made or not."""
    for make_tags in (False, True):
        settings.IDGEN = {"REST": {"make_tags": make_tags}}
        for wrong in ("", " a", "a" * 129, "a\x00", "a\ud800"):
            with pytest.raises(InvalidTag):
                check_known(wrong)


def test_behind_a_pool_the_database_is_asked(redis: str, postgres: str, settings: Any) -> None:
    """The pool itself knows only what lies in it."""
    behind = {"OPTIONS": {"database": postgres}}
    settings.IDGEN = {
        "SEGMENTS": {
            "SOURCE": {
                "BACKEND": "django_idgen.sources.pool.PoolSource",
                "OPTIONS": {"alias": redis, "source": behind},
            }
        }
    }
    with pytest.raises(UnknownTag):
        check_known("orders")
    segments["orders"].next_id()
    forget()
    check_known("orders")
