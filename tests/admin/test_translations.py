"""Each message of the package has its Chinese, and the compiled file says the same."""

from __future__ import annotations

import gettext
import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import django
import pytest
from django.conf import settings
from django.utils.translation import to_language

from .messages import CATALOGS, Entry, Message, entries, messages

PO = CATALOGS / "zh_Hans" / "LC_MESSAGES" / "django.po"
MO = PO.with_suffix(".mo")
PLACEHOLDER = re.compile(r"%\(\w+\)[-+ #0-9.]*[a-z]|(?<!%)%[sdr]|\{\w+\}|</?\w+>")
HALF_WIDTH = re.compile(r"[一-鿿]\s*[,;:!?()]|[,;:!?()]\s*[一-鿿]|[一-鿿]\.(?!\w)")
TOUCHING = re.compile(r"[一-鿿][A-Za-z0-9%]|[A-Za-z0-9][一-鿿]|\)[sd][一-鿿]")
TIMES = {"%(time)s ago", "in %(time)s", "ends in %(time)s"}
"""What is said of a time, which ends in Chinese itself."""


@cache
def translated() -> list[Entry]:
    return entries(PO)


def found(entry: Entry) -> list[str]:
    """The message as gettext has it, of one and of several."""
    with MO.open("rb") as file:
        catalog = gettext.GNUTranslations(file)
    message = entry.message
    if message.plural:
        return [catalog.ngettext(message.id, message.plural, count) for count in (1, 2, 11)]
    if message.context:
        return [catalog.pgettext(message.context, message.id)]
    return [catalog.gettext(message.id)]


def test_the_tools_find_what_there_is() -> None:
    """In code and templates: plain ones, plurals, those with a context, those in filters."""
    known = messages()
    for message in (
        Message("Skip ahead"),
        Message("%(number)s day", "%(number)s days"),
        Message("time", context="field of an id"),
        Message("in use"),
        Message("unnamed holder"),
        Message("Release worker id %(worker)d?"),
    ):
        assert message in known
    assert len(known) > 200


def test_every_message_is_translated() -> None:
    """And none is that there is not any more; no guess of a tool is among them."""
    told, known = {entry.message for entry in translated()}, messages()
    missing = {message.id: known[message] for message in known.keys() - told}
    assert not missing, "run makemessages, and translate these"
    assert not {message.id for message in told - known.keys()}, "run makemessages"
    assert len(told) == len(translated())
    assert not [entry.message.id for entry in translated() if not entry.text.strip()]
    assert not [entry.message.id for entry in translated() if "fuzzy" in entry.flags]
    assert {entry.forms for entry in translated() if entry.message.plural} == {1}


def test_no_placeholder_is_lost_or_made_up() -> None:
    """Nor what stands in markup: a page would break, or lack a number."""
    wrong = {
        entry.message.id: entry.text
        for entry in translated()
        if sorted(PLACEHOLDER.findall(entry.message.plural or entry.message.id))
        != sorted(PLACEHOLDER.findall(entry.text))
    }
    assert not wrong


def test_chinese_is_set_as_chinese() -> None:
    """Full-width punctuation next to it, and a space between it and Latin letters or digits."""
    for entry in translated():
        if entry.message.id in TIMES:
            continue
        shown = re.sub(r"%\((\w+)\)[-+.0-9]*[sdg]|\{\w+\}", "0", entry.text)
        assert not HALF_WIDTH.search(shown), entry.text
        assert not TOUCHING.search(shown), entry.text


def test_the_compiled_file_says_the_same() -> None:
    """Each message, and none besides: it was made of this very text."""
    for entry in translated():
        assert set(found(entry)) == {entry.text}, entry.message
    _magic, _revision, count = struct.unpack("<3I", MO.read_bytes()[:12])
    assert count == len(translated()) + 1  # the header


def test_the_catalog_is_of_a_language_that_django_knows() -> None:
    """Or no browser would ever be shown it."""
    languages = {code for code, _name in settings.LANGUAGES}
    assert {to_language(each.name) for each in CATALOGS.iterdir()} <= languages


def of_others() -> Iterator[Path]:
    """The Chinese of Django and of what we build on: all of it goes into one catalog."""
    rest_framework = pytest.importorskip("rest_framework")
    for package in (django, rest_framework):
        assert package.__file__ is not None
        yield from Path(package.__file__).parent.rglob("zh_Hans/LC_MESSAGES/django.mo")


def test_what_django_says_too_is_said_alike() -> None:
    """Whichever app comes first in a project, no page of Django's changes its words."""
    catalogs = []
    for path in of_others():
        with path.open("rb") as file:
            catalogs.append(gettext.GNUTranslations(file))
    assert catalogs
    for entry in translated():
        for catalog in catalogs if not entry.message.context else ():
            assert catalog.gettext(entry.message.id) in {entry.message.id, entry.text}
