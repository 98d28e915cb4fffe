"""``manage.py idgen_decode``: what it prints, and that it needs no database."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_idgen.core.layout import parse_layout
from django_idgen.process import maps

LAYOUT = parse_layout("standard")
NUMBER = LAYOUT.pack(59_574_693_854, 540, 7)
"""2026-11-21 12:31:33.854 UTC."""
TEXT = "cus_0ISQUWhLyEh"
ROOT = Path(__file__).parents[2]
SMALL = """
import django.conf, sys
django.conf.settings.configure(
    INSTALLED_APPS=["django_idgen"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": "1", "NAME": "x",
    }},
)
import django
django.setup()
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "idgen_decode", *sys.argv[1:]])
"""
"""A project whose database is away."""


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with override_settings(IDGEN={}):
        yield
    maps.reset()


def told(*words: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("idgen_decode", *words, stdout=out, offline=True, no_color=True, **options)
    return out.getvalue()


def test_an_id_is_told_with_its_bits_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time, worker and sequence; a column a bit, the ruler to scale."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = told(str(NUMBER)).splitlines()
    assert lines[0] == str(NUMBER)
    assert "2026-11-21 12:31:33.854 UTC (tick 59574693854)" in "\n".join(lines)
    assert f"    |{'-' * 41}|{'-' * 10}|{'-' * 12}|" in lines
    assert any(line.split() == ["worker", "540"] for line in lines)
    assert any(line.split() == ["sequence", "7"] for line in lines)


def test_it_keeps_to_the_terminal_s_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawing never wraps: where it does not fit, it is left out."""
    for columns in (40, 60, 70, 71, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        drawn = [line for line in told(str(NUMBER)).splitlines() if "|--" in line]
        assert bool(drawn) == (columns >= 71)
        assert max(map(len, drawn), default=0) <= columns


def test_a_prefix_names_the_model() -> None:
    """With why it was read so, in plain English whatever the language: programs read it."""
    with override_settings(LANGUAGE_CODE="zh-hans"):
        assert "base62 after “cus_”, the prefix of app.Customer.id" in told(TEXT)


def test_several_ids_are_one_json_document_each() -> None:
    """With every reading of each, ids as strings."""
    documents = [json.loads(line) for line in told(TEXT, str(NUMBER), json=True).splitlines()]
    assert [document["given"] for document in documents] == [TEXT, str(NUMBER)]
    for document in documents:
        (reading,) = document["readings"]
        assert reading["id"] == str(NUMBER)
        (generator,) = reading["generators"]
        assert generator["parts"]["worker"] == 540
        assert [field["bits"] for field in generator["fields"]] == [41, 10, 12]
        assert generator["plausible"] is True


def test_ids_are_read_from_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """One a line, blank ones left out, between those of the command line."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"\n {TEXT}\n\n{NUMBER + 1}\n"))
    heads = [line for line in told("16", "-").splitlines() if line.isdigit()]
    assert heads == ["16", str(NUMBER), str(NUMBER + 1)]


def test_one_that_can_t_be_read_is_named_after_the_others_were_told() -> None:
    """The exit code is 1, and each of them is named."""
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("idgen_decode", "nope", str(NUMBER), "0", stdout=out, offline=True)
    assert caught.value.returncode == 1
    assert "'nope' is not an id" in str(caught.value)
    assert "'0' is not an id" in str(caught.value)
    assert str(NUMBER) in out.getvalue()


def test_an_unknown_generator_tag_or_form_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(CommandError, match="Known: 'default'"):
        told("5", generator="nope")
    with pytest.raises(CommandError, match="Segment tag"):
        told("5", tag="x" * 200)
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("idgen_decode", "5", "--form=base9")


def test_without_a_database_it_says_what_it_can() -> None:
    """All but who held the worker id, and of which tag it may be: that they can't be asked."""
    done = subprocess.run(
        [sys.executable, "-c", SMALL, str(NUMBER), "0ISQUWhLyEh", "\udcff", "-"],
        input=b"\xff\xfe\n5\n",
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": ""},
        timeout=120,
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 1, err
    assert "2026-11-21 12:31:33.854 UTC" in out
    assert "unknown: " in out
    assert "can't be queried" in out
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if "is not an id" in line]) == 2
