"""What went wrong, in the language of the page: each usual error as a sentence of its own."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import translation

from django_idgen.admin.text import error_text
from django_idgen.core.errors import (
    ClockMovedBackwards,
    ConfigurationError,
    IdgenError,
    InvalidId,
    InvalidTag,
    LeaseExpired,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
    SegmentExhausted,
    SegmentUnavailable,
    TagPaused,
    WorkerOutOfRange,
)
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.edits import (
    PoolStillOpen,
    SkipRefused,
    StepOvertaken,
    TagExists,
    Unstorable,
)
from django_idgen.process.tags import TagsElsewhere, TagUnknown
from django_idgen.settings.config import SettingsError

from .chinese import ADMIN, HAN, client_of_china, english, look, tag, told

__all__ = ["client_of_china", "tag"]

TAGS = f"{ADMIN}leafalloc/"
USUAL: list[tuple[Exception, str]] = [
    (TagUnknown("orders"), "orders"),
    (TagExists("orders"), "orders"),
    (TagsElsewhere(object()), ""),
    (TagPaused("orders"), "orders"),
    (PoolStillOpen("orders"), "orders"),
    (SkipRefused("orders", max_id=900, wanted=500, most=9), "500"),
    (SkipRefused("orders", max_id=900, wanted=5000, most=9), "5000"),
    (StepOvertaken("orders", seen=5, stored=70), "70"),
    (StepOvertaken("orders", seen=5, stored=None), "orders"),
    (InvalidTag("\x07orders", "it has a character that can't be printed"), "orders"),
    (InvalidId("nope", "it can't be read"), ""),
    (InvalidId("9" * 30, "ids are whole numbers"), str(2**63 - 1)),
    (InvalidId("9" * 20_000, "it has 20000 characters"), "20000"),
    (InvalidId(10**5000, "ids are whole numbers"), str(2**63 - 1)),
    (SegmentExhausted("there are no higher ids"), str(2**63 - 1)),
    (NoFreeWorker("shop", range(1024)), "1024"),
    (WorkerOutOfRange(5000, range(1024)), "5000"),
    (NamespaceMismatch("shop", "epoch", 1, 2), "shop"),
]
DETAIL = "xyz"
TECHNICAL: list[Exception] = [
    kind(DETAIL)
    for kind in (
        SegmentUnavailable,
        RegistryUnavailable,
        LeaseExpired,
        ClockMovedBackwards,
        ConfigurationError,
        SettingsError,
        Unstorable,
        OperationalError,
    )
]


@pytest.mark.parametrize(("error", "named"), USUAL, ids=lambda each: type(each).__name__)
def test_a_usual_error_is_said_in_chinese(error: Exception, named: str) -> None:
    """Without a word of English, and with the value that is wrong; in English as it is."""
    with translation.override("zh-hans"):
        words = error_text(error)
    assert named in words
    assert HAN.search(words)
    assert not english(words) - {"Redis", "idgen", "doctor", "fix", "epoch"}
    for language in ("en", "en-gb", None):
        with translation.override(language):
            assert error_text(error) == str(error)


@pytest.mark.parametrize("error", TECHNICAL, ids=lambda each: type(each).__name__)
def test_one_that_names_hosts_and_settings_is_introduced(error: Exception) -> None:
    """In Chinese; its own words follow, for whoever looks after the servers."""
    with translation.override("zh-hans"):
        words = error_text(error)
    assert HAN.search(words)
    assert english(words) == {DETAIL}


def test_one_that_nobody_knows_speaks_for_itself() -> None:
    """On one line."""
    with translation.override("zh-hans"):
        assert error_text(IdgenError("of \n another app")) == "of another app"


@pytest.mark.django_db(databases="__all__")
def test_pages_say_what_went_wrong_in_chinese(client_of_china: Client, tag: LeafAlloc) -> None:
    """A skip and a step that somebody overtook, and what is no id."""
    sure = {"tag": "orders", "to": 7, "confirm": "yes"}
    assert "不能退回" in told(client_of_china.post(f"{TAGS}skip/", sure, follow=True))
    for given in ("nope", "0", "x" * 9999):
        assert "这不是 ID。" in look(client_of_china, f"{ADMIN}decode/", id=given)
