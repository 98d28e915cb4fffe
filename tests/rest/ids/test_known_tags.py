"""Whether there is a tag: right on every database, and asked of none in the hot path."""

from __future__ import annotations

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
from django_idgen.rest.tags import KNOWN_TAGS, KnownTags, UnknownTag, check_known
from tests.places import empty_place, idgen_on, place
from tests.rest.forgetting import forget

__all__ = ["empty_place", "place"]


class Stopwatch:
    """A clock that is set by hand."""

    seconds = 0.0

    def stopwatch(self) -> float:
        return self.seconds


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
            assert KNOWN_TAGS.has_lately("made")
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


def test_a_database_that_is_dead_is_passed_over_if_another_one_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If none of the others does, nobody can say."""
    answers = {"a": SegmentUnavailable("away"), "b": True, "c": False}

    def ask(alias: str, _tag: str) -> bool:
        answer = answers[alias]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(tags, "_is_in", ask)
    assert tags._is_in_one_of(("a", "b"), "orders")
    assert not tags._is_in_one_of(("c",), "orders")
    with pytest.raises(SegmentUnavailable, match="away"):
        tags._is_in_one_of(("a", "c"), "orders")


# --- what is remembered ------------------------------------------------------------------


def test_a_tag_that_is_not_there_is_asked_for_each_time() -> None:
    """So that one that was just made works at once."""
    asked: list[str] = []
    there: set[str] = set()

    def exists(tag: str) -> bool:
        asked.append(tag)
        return tag in there

    clock = Stopwatch()
    known = KnownTags(exists, clock)  # type: ignore[arg-type]
    assert not known.has("a")
    there.add("a")
    assert known.has("a")
    assert known.has("a")
    assert asked == ["a", "a"]
    clock.seconds += tags.TRUSTED
    assert not known.has_lately("a")
    assert known.has("a")
    assert asked == ["a", "a", "a"]


def test_while_nobody_can_be_asked_what_was_found_is_believed() -> None:
    """And of the rest it is said that nobody can be asked."""
    away: list[SegmentUnavailable] = []

    def exists(tag: str) -> bool:
        for error in away:
            raise error
        return True

    clock = Stopwatch()
    known = KnownTags(exists, clock)  # type: ignore[arg-type]
    assert known.has("a")
    away.append(SegmentUnavailable("away"))
    clock.seconds += 10 * tags.TRUSTED
    assert known.has("a")
    with pytest.raises(SegmentUnavailable):
        known.has("b")
    clock.seconds = 0.0
    assert known.has_lately("a")
    maps.reset()  # other settings, perhaps another database
    assert not known.has_lately("a")
    with pytest.raises(SegmentUnavailable):
        known.has("a")


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first."""
    monkeypatch.setattr(tags, "MOST_KNOWN", 3)
    known = KnownTags(lambda tag: True)
    for tag in "abcd":
        assert known.has(tag)
    assert [tag for tag in "abcd" if known.has_lately(tag)] == ["b", "c", "d"]


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
