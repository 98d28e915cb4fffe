"""``manage.py idgen_tag``: tags are made, changed, paused and listed without a line of Python."""

from __future__ import annotations

import logging
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_idgen import segments
from django_idgen.core.errors import TagPaused
from django_idgen.models import LeafAlloc
from django_idgen.process import maps
from tests.places import place as place


def tag(*words: str) -> list[str]:
    out = StringIO()
    call_command("idgen_tag", *words, stdout=out)
    return out.getvalue().splitlines()


def test_a_tag_is_made_changed_paused_and_listed(place: str, caplog: Any) -> None:
    """In all of its databases; each change is in the log."""
    caplog.set_level(logging.INFO, "django_idgen")
    assert tag("list") == []
    made = tag("create", "orders", "--step", "10", "--first", "500", "--description", "Orders")
    assert made == ["orders: next id 500, step 10"]
    assert LeafAlloc.objects.using(place).get().description == "Orders"
    assert segments["orders"].next_id() == 500
    assert tag("step", "orders", "20") == ["orders: next id 510, step 20"]
    assert tag("pause", "orders") == ["orders: next id 510, step 20, paused"]
    maps.reset()
    with pytest.raises(TagPaused):
        segments["orders"].next_id()
    assert tag("resume", "orders") == ["orders: next id 510, step 20"]
    assert segments["orders"].next_id() == 510
    tag("create", "a/b")
    assert [line.partition(":")[0] for line in tag("list")] == ["a/b", "orders"]
    assert sum("'idgen_tag' changed tag" in each.message for each in caplog.records) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "orders"), "orders"),
        (("create", "new", "--step", "0"), "step .*not 0"),
        (("create", "new", "--first", "0"), "--first must be an id of 1 to"),
        (("create", " x"), "' x'"),
        (("create", "new", "--description", "a\x1b[31m"), r"'a\\x1b\[31m': Enter a valid value"),
        (("create", "x" * 129), "128"),
        (("step", "none", "5"), "none"),
        (("step", "orders", "-1"), "step .*not -1"),
        (("pause", "none"), "none"),
        (("resume", "none"), "none"),
    ],
)
def test_what_can_not_be_done_is_said(place: str, words: tuple[str, ...], said: str) -> None:
    """One line with the value, and nothing is changed."""
    tag("create", "orders", "--step", "7")
    with pytest.raises(CommandError, match=said) as caught:
        tag(*words)
    assert "\n" not in str(caught.value)
    assert tag("list") == ["orders: next id 1, step 7"]
