"""What went wrong, in the language of the page: each usual error as a sentence of its own."""

from __future__ import annotations

from django.db import OperationalError
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
from django_idgen.ops.tags.edits import (
    PoolStillOpen,
    SkipRefused,
    StepOvertaken,
    TagExists,
    Unstorable,
)
from django_idgen.process.tags import TagsElsewhere, TagUnknown
from django_idgen.settings.config import SettingsError

from .chinese import HAN, english

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


def test_a_usual_error_is_said_in_chinese() -> None:
    """Without a word of English, and with the value that is wrong; in English as it is."""
    for error, named in USUAL:
        with translation.override("zh-hans"):
            words = error_text(error)
        assert named in words
        assert HAN.search(words)
        assert not english(words) - {"Redis", "idgen", "doctor", "fix", "epoch"}
        for language in ("en", "en-gb", None):
            with translation.override(language):
                assert error_text(error) == str(error)


def test_one_that_names_hosts_and_settings_is_introduced() -> None:
    """In Chinese; its own words follow, for whoever looks after the servers."""
    for error in TECHNICAL:
        with translation.override("zh-hans"):
            words = error_text(error)
        assert HAN.search(words)
        assert english(words) == {DETAIL}


def test_one_that_nobody_knows_speaks_for_itself() -> None:
    """On one line."""
    with translation.override("zh-hans"):
        assert error_text(IdgenError("of \n another app")) == "of another app"
