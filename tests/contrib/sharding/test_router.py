"""Tags spread over databases by a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import segments
from django_idgen.contrib.sharding import ShardedSource
from django_idgen.core.errors import ConfigurationError, InvalidTag
from django_idgen.models import LeafAlloc
from django_idgen.sources.database import DatabaseSource


def by_first_letter(tag: str) -> str | Sequence[str]:
    """The router of these tests."""
    if tag.startswith("shared."):
        return ["west", "north"]
    if tag == "broken":
        raise LookupError("no such tag")
    return {"a": "east", "n": "nowhere"}.get(tag[0], "south")


PATH = f"{__name__}.by_first_letter"


def tags(alias: str) -> list[str]:
    return sorted(LeafAlloc.objects.using(alias).values_list("pk", flat=True))


def test_each_tag_comes_from_the_database_that_the_router_names(shards: list[str]) -> None:
    """One of them, or several that share it; ids start at 1 in each."""
    source = ShardedSource(default_step=10, router=PATH)
    assert [source.fetch(tag).start for tag in ("a", "b", "c", "a")] == [1, 1, 1, 11]
    shared = [source.fetch("shared.t") for _ in range(6)]
    ids = [number for segment in shared for number in segment.ids()]
    assert len(ids) == len(set(ids)) == 60
    assert [tags(alias) for alias in shards] == [["a"], ["shared.t"], ["shared.t"], ["b", "c"]]


def test_the_settings_name_the_router(shards: list[str]) -> None:
    """By its dotted path; the tags of a process go where it says, each in order."""
    options = {"router": PATH}
    idgen: dict[str, Any] = {
        "SEGMENTS": {
            "SOURCE": {
                "BACKEND": "django_idgen.contrib.sharding.ShardedSource",
                "OPTIONS": options,
            },
            "OPTIONS": {"timeout": 30},
        }
    }
    with override_settings(IDGEN=idgen):
        used = ("a", "b", "shared.u")
        taken = {tag: [segments[tag].next_id() for _ in range(3500)] for tag in used}
    assert taken["a"] == taken["b"] == list(range(1, 3501))
    assert taken["shared.u"] == sorted(set(taken["shared.u"]))
    assert [tags(alias) for alias in shards] == [["a"], ["shared.u"], ["shared.u"], ["b"]]


def test_a_database_is_in_one_list(shards: list[str]) -> None:
    """One that gives out ids alone can't share a tag: its new rows would be made both ways."""
    source = ShardedSource(default_step=10, router=lambda tag: tag.split(","))
    source.fetch("east")
    with pytest.raises(ConfigurationError, match=r"delta=1, remainder=0.*delta=2, remainder=0"):
        source.fetch("east,west")


def test_what_it_can_not_answer_is_named(shards: list[str]) -> None:
    """The router, the tag and its answer."""
    source = DatabaseSource(default_step=10, router=PATH)
    for tag, words in (("new", "'nowhere'"), ("broken", "no such tag"), ("", "empty")):
        with pytest.raises((ConfigurationError, InvalidTag), match=words):
            source.fetch(tag)


def test_any_function_can_be_one(shards: list[str]) -> None:
    """Where the source is made by hand."""
    source = DatabaseSource(default_step=10, router=lambda tag: "west")
    assert source.fetch("t").start == 1
    assert tags("west") == ["t"]
    source.abandon()
    source.close()
    assert source.fetch("t").start == 11
