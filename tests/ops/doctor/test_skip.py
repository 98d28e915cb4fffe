"""``idgen_skip``: nothing is given out again by a database that was put back."""

from __future__ import annotations

import re
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import transaction
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.segment import MAX_ID
from django_idgen.db.redis_client import raw_client
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord, WorkerLease
from tests.ops.doctor.fleet import (
    FAR,
    dense,
    fleet,
    highest_of,
    idgen,
    lowest_of,
    on_database,
    on_redis,
)
from tests.places import make_tables
from tests.redis_servers import cache_alias, redis_farm

FEW = 4
"""Ids of a fleet that is far ahead: those of two ticks."""
TABLES = (Installation, NamespaceRecord, WorkerLease, LeafAlloc)


def skip(*tags: str, **options: Any) -> str:
    """What the command wrote."""
    out = StringIO()
    call_command("idgen_skip", *tags, stdout=out, **options)
    return out.getvalue()


def backup(alias: str) -> dict[type, list[dict[str, Any]]]:
    """The rows of our tables as they are now."""
    make_tables(alias)
    return {model: list(model.objects.using(alias).values()) for model in TABLES}


def restore(alias: str, rows: dict[type, list[dict[str, Any]]]) -> None:
    """Put the rows back, as a restored backup does: what was made since is gone."""
    with transaction.atomic(using=alias):
        for model, values in rows.items():
            model.objects.using(alias).all().delete()
            model._base_manager.using(alias).bulk_create([model(**row) for row in values])


def test_a_restored_database_repeats_nothing(server_alias: str, tmp_path: Path) -> None:
    """I1: processes of before and after it, of tags and of a generator."""
    # A window so long that no old process asks again meanwhile, which would put its mark right.
    setting = dense(on_database(server_alias), window=60, **FAR)
    with fleet(tmp_path) as processes, override_settings(IDGEN=setting):
        (tags,) = processes.start(setting, 1, name="tags", tags="orders bills")
        (first,) = processes.start(setting, 1)
        for taker in (tags, first):
            taker.wait_for(FEW)
        kept = backup(server_alias)
        # It takes a worker id of which the backup knows nothing, and ids past its marks.
        (second,) = processes.start(setting, 1)
        for taker in (first, second):
            taker.wait_until_ahead()
        tags.wait_for(3000)
        processes.stop("tags")
        tags.end()
        highest = highest_of([first, second])
        restore(server_alias, kept)
        words = skip(all=True, generators=[], yes=True)
        assert "are skipped" in words
        assert "generation" in words
        new = processes.start(setting, 2, name="new")
        (later,) = processes.start(setting, 1, name="new", tags="orders bills")
        later.wait_for(200)
        for taker in (first, second, *new):
            taker.wait_for(FEW)
    processes.assert_no_repeats()
    assert lowest_of(new) > highest


@pytest.mark.parametrize("redis_is", ["kept", "restored"])
def test_redis_goes_on_past_a_restored_database(
    redis_is: str, postgres: str, tmp_path: Path
) -> None:
    """I1: what Redis has lent since the backup lies below the new fence, too.

    Whether it still knows of it, or was put back together with the database.
    """
    with redis_farm() as farm, ExitStack() as stack:
        server = farm.server()
        alias = stack.enter_context(cache_alias("restored", server.url))
        # A window and a stride that end before what the fleet stamps in the end.
        leases = on_redis(alias, postgres, stride=60)
        setting = dense(leases, window=60, **FAR)
        stack.enter_context(override_settings(IDGEN=setting))
        processes = stack.enter_context(fleet(tmp_path))
        generators["default"].next_id()
        generators.close()
        kept = backup(postgres)
        server.run("SAVE")
        old = processes.start(setting, 2)
        for taker in old:
            taker.wait_until_ahead()
        if redis_is == "restored":
            server.kill()  # what it has on disk is the copy
            server.start()
        highest = highest_of(old)
        restore(postgres, kept)
        skip(generators=["default"], yes=True)
        (new,) = processes.start(setting, 1, name="new")
        for taker in (new, *old):
            taker.wait_for(FEW)
    processes.assert_no_repeats()
    assert lowest_of([new]) > highest


def test_sqlite_skips_its_marks(file: str) -> None:
    """The file beside the database counts, not the row."""
    call_command("migrate", "django_idgen", verbosity=0)
    with override_settings(IDGEN={}):
        first = segments["orders"].next_id(), generators["default"].next_id()
        skip("orders", by=10_000, generators=["default"], yes=True)
        assert segments["orders"].next_id() > first[0] + 9_000
        assert generators["default"].next_id() > first[1]


def test_it_asks_and_shows_first(server_alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Declined, or with --dry-run, nothing is changed. An estimate is called one."""
    # A window so long that no renewal changes a row meanwhile.
    with override_settings(IDGEN=idgen(on_database(server_alias), window=3600)):
        segments["orders"].next_id()
        generators["default"].next_id()
        before = backup(server_alias)
        shown = skip("orders", by=500, dry_run=True)
        assert "1001 -> 1501 (500 ids are skipped)" in shown
        assert "give --by N" not in shown
        assert "give --by N" in skip("orders", hours_ago=6, dry_run=True)
        monkeypatch.setattr("builtins.input", lambda _prompt: "")
        with pytest.raises(CommandError, match="Nothing was done"):
            skip(all=True, generators=[])
        assert backup(server_alias) == before
        monkeypatch.setattr("builtins.input", lambda _prompt: "y")
        assert "next id is 1501" in skip("orders", by=500)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "Name tags"),
    ({"tags": ["nowhere"]}, "no tag 'nowhere'"),
    ({"tags": ["a"], "all": True}, "Either"),
    ({"tags": ["a"], "by": 0}, "--by must be"),
    ({"tags": ["a"], "to": 2**63}, "--to must be"),
    ({"tags": ["a"], "hours_ago": -1.0}, "must be 0 to"),
    ({"generators": ["other"]}, "no generator 'other'"),
    ({"generators": [], "until": "noon"}, "with its zone"),
    ({"generators": [], "until": "2026-01-01T00:00"}, "with its zone"),
    ({"tags": ["a"], "until": "2026-01-01T00:00Z"}, "--hours-ago"),
]


def test_bad_input_is_refused_in_words(file: str) -> None:
    """Nothing is a traceback."""
    with override_settings(IDGEN={}):
        for given, words in REFUSED:
            options = {name: value for name, value in given.items() if name != "tags"}
            with pytest.raises(CommandError, match=words):
                skip(*given.get("tags", []), yes=True, **options)


def test_new_tags_start_past_what_a_lost_one_may_have_taken(postgres: str) -> None:
    """A tag that was made after the backup is gone with it; made anew it starts higher."""
    with override_settings(IDGEN=idgen(on_database(postgres))):
        segments["orders"].next_id()
        kept = backup(postgres)
        lost = segments["bills"].next_ids(50)
        restore(postgres, kept)
        segments.close()
        skip(all=True, yes=True)
        assert segments["bills"].next_id() > max(lost)


def test_new_tags_start_higher_where_no_tag_is_left(postgres: str) -> None:
    """The backup is older than the first tag; ``--by`` says how far they are to start."""
    with override_settings(IDGEN=idgen(on_database(postgres))):
        kept = backup(postgres)
        lost = segments["orders"].next_ids(50)
        restore(postgres, kept)
        segments.close()
        shown = skip(all=True, hours_ago=6, dry_run=True)
        assert "new tags start 100000 further" in shown
        assert "How many ids the lost tags had is not known" in shown
        assert "new tags start 77 further" in skip(all=True, by=77, dry_run=True)
        assert "new tags start 100000 further" in skip(all=True, hours_ago=6, yes=True)
        assert "There is nothing to do" in skip(all=True, to=77, yes=True)
        assert segments["orders"].next_id() > max(lost) + 40_000


def test_namespaces_of_other_projects_are_named(postgres: str) -> None:
    """Their generators are not in this project's settings; only their own project can skip them."""
    both = idgen(on_database(postgres))
    both["GENERATORS"]["orders"] = {"LEASES": on_database(postgres)}
    with override_settings(IDGEN=both):
        generators["orders"].next_id()
        assert "NOT skipped" not in skip(generators=[], yes=True)
    with override_settings(IDGEN=idgen(on_database(postgres))):
        shown = skip(generators=[], yes=True)
        assert f"NOT skipped: namespace 'orders' in database '{postgres}'" in shown
        assert "NOT skipped" not in skip(generators=["default"], yes=True)


def test_new_tags_start_no_further_than_needed(postgres: str) -> None:
    """``--to`` an id that all tags are past moves worker ids alone.

    A skip past the end leaves the last id, and no error of the database.
    """
    with override_settings(IDGEN=idgen(on_database(postgres))):
        segments["orders"].next_id()
        generators["default"].next_id()
        installation = Installation.objects.using(postgres)
        before = installation.get().first_id
        assert "new tags" not in skip(all=True, to=5, generators=["default"], yes=True)
        assert installation.get().first_id == before
        installation.update(first_id=MAX_ID - 5)
        skip(all=True, by=2**62, yes=True)
        assert installation.get().first_id == MAX_ID


def test_until_reaches_further(postgres: str) -> None:
    """A server that goes on elsewhere until then is reckoned with. The preview is what happens.

    Also where a holder is ahead of the time, after an earlier skip.
    """
    setting = dense(on_database(postgres, workers=[0, 2]), **FAR)
    years = []
    with override_settings(IDGEN=setting):
        for year in (2040, 2041):
            generators["default"].next_id()
            shown = skip(generators=[], yes=True, until=f"{year}-01-01T00:00:00Z")
            asked, done = re.findall(r"from tick (\d+) on", shown)[-2:]
            assert asked == done
            generators.close()  # else it uses up the window that it has
            number = generators["default"].next_id()
            years.append(generators["default"].layout.unpack(number).created.year)  # type: ignore[attr-defined]
            generators.close()
    assert years[0] == 2040
    assert years[1] > 2041  # the other server may be as far ahead of the time as this one


@pytest.mark.django_db
def test_a_tag_in_a_source_of_its_own_is_refused(tmp_path: Path) -> None:
    """By the tag or the alias: it is not said to be unknown, and the way out is named."""
    entry = {
        "BACKEND": "django_idgen.core.tag_generator.SerialGenerator",
        "SOURCE": {"OPTIONS": {"directory": str(tmp_path)}},
        "OPTIONS": {"tag": "boxes"},
    }
    with override_settings(IDGEN={"GENERATORS": {"serial": entry}}):
        for call in (lambda: skip("boxes"), lambda: skip(generators=["serial"])):
            with pytest.raises(CommandError, match=r"'serial' keeps its tag .* raise the mark"):
                call()
        assert "NOT skipped: Generator 'serial'" in skip(all=True, dry_run=True)
        with pytest.raises(CommandError, match="generator 'serial' were NOT skipped"):
            skip(all=True, yes=True)


def test_a_tag_with_a_block_in_redis_is_refused_before_anything_is_asked(postgres: str) -> None:
    """Its row is in the database of SEGMENTS, but Redis goes on with its block.

    What the refusal says instead does what was asked for.
    """
    source = {"alias": "own", "source": {"OPTIONS": {"database": postgres}}, "timeout": 30}
    generator = {
        "BACKEND": "django_idgen.sources.redis_incr.RedisIncrGenerator",
        "SOURCE": {"OPTIONS": source},
        "OPTIONS": {"timeout": 30},
    }
    setting = {
        "GENERATORS": {"orders": generator},
        "SEGMENTS": {"SOURCE": {"OPTIONS": {"database": postgres}}},
    }
    with redis_farm() as farm:
        server = farm.server()
        with cache_alias("own", server.url), override_settings(IDGEN=setting):
            assert generators["orders"].next_id() == 1
            before = backup(postgres)
            with pytest.raises(CommandError, match=r"Redis of CACHES\['own'\]: the keys that"):
                skip("orders", to=5_000_001)
            assert backup(postgres) == before
            generators.close()
            LeafAlloc.objects.using(postgres).filter(pk="orders").update(max_id=5_000_001)
            keys = raw_client("own").keys("django_idgen:pool*:orders")
            assert keys
            raw_client("own").delete(*keys)
            assert generators["orders"].next_id() == 5_000_001
