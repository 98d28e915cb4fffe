"""Moves and skips under real fleets: no id comes again, whatever was changed or put back."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import transaction
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import NamespaceMismatch, RegistryUnavailable
from django_idgen.core.layout import parse_layout
from django_idgen.core.segment import MAX_ID
from django_idgen.core.store import StoredBook
from django_idgen.core.stored import Era, Stored, layout_of
from django_idgen.db.redis_client import raw_client
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord, WorkerLease
from django_idgen.ops.doctor.move import Found, _is_past, fence_of
from tests.ops.doctor.asking import doctor, findings, mended
from tests.ops.doctor.fleet import (
    FAR,
    Idgen,
    dense,
    fleet,
    highest_of,
    idgen,
    lowest_of,
    on_database,
    on_redis,
    on_zookeeper,
)
from tests.places import empty_sqlite, make_tables
from tests.redis_servers import cache_alias, redis_farm
from tests.server_tools import one_more
from tests.tiers import long

NEW_LAYOUT = {"LAYOUT": {"time": 40, "worker": 2, "sequence": 3, "tick": 0.1}}
NEW_FAR_LAYOUT = {"LAYOUT": {"time": 40, "worker": 2, "sequence": 2, "tick": 0.5}}
"""Their ids are as high as the dense ones of the same time: each is one that they may have had."""
ALL = [0, 2]
"""The worker ids: as many as there are old processes, so that the new ones need the same."""

MANY, FEW = 40, 4
"""Ids of a dense process: those of half a second; those of two ticks if it is far ahead."""
YEARS_AHEAD = "2040-01-01T00:00:00Z"


def skip(*tags: str, **options: Any) -> str:
    """What ``idgen_skip`` wrote."""
    out = StringIO()
    call_command("idgen_skip", *tags, stdout=out, **options)
    return out.getvalue()


def decoded(time: datetime) -> str:
    """A time as ``idgen_decode`` shows it."""
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d} UTC"


def not_while_others_run(only: str, **options: Any) -> str:
    """What the doctor said, which mends nothing as long as others may run."""
    code, words = doctor(only, fix=True, yes=True, **options)
    assert (code, "not without --others-stopped" in words) == (2, True), words
    return words


def moved_under_load(
    tmp_path: Path, alias: str, old: Idgen, new: Idgen, *, olds: int = 2, news: int = 1
) -> None:
    """Old processes take ids while the doctor moves the namespace and new ones start."""
    with fleet(tmp_path) as processes:
        before = processes.start(old, olds)
        for taker in before:
            taker.wait_until_ahead()
        after = processes.start(new, news, name="new")
        for taker in after:
            taker.wait_for_refusal()
            assert taker.ids() == []
        with override_settings(IDGEN=new):
            assert "All is well" in mended("settings", database=[alias])
        for taker in after:
            taker.wait_for(MANY)
        for taker in before:
            taker.wait_for_refusal()
        after[0].wait_for(MANY)
    processes.assert_no_repeats()
    assert lowest_of(after) > highest_of(before)
    assert all(taker.refusals() <= {"NamespaceMismatch", "LeaseExpired"} for taker in before)


LEASES = {
    "database": lambda _request, alias, workers: on_database(alias, workers=workers),
    "redis": lambda request, alias, workers: on_redis(
        request.getfixturevalue("redis"), alias, workers=workers
    ),
    "zookeeper": lambda request, alias, workers: on_zookeeper(
        request.getfixturevalue("zookeeper").hosts, alias, workers=workers
    ),
}


@dataclass(frozen=True)
class Change:
    """What a fleet of :data:`ALL` worker ids changes to."""

    was: str
    to: str
    workers: list[int] = field(default_factory=lambda: ALL)
    generator: dict[str, Any] = field(default_factory=dict)
    news: int = 1


CHANGES = {"another layout": Change("database", "database", generator=NEW_LAYOUT)}
MORE = {
    # At once: no window of the old fleet has to end first.
    "from the database to Redis": Change("database", "redis"),
    # All the marks are forgotten with that: only the fence holds back.
    "other worker ids in Redis": Change("redis", "redis", workers=[1, 3]),
    # Its node is made by the first of the new processes.
    "from the database to ZooKeeper": Change("database", "zookeeper"),
    # A second earlier: the new ids of now are the old ones of a second later.
    "another epoch": Change("database", "database", generator={"EPOCH": "2024-12-31T23:59:59Z"}),
    # A range that overlaps with the old one; the marks that stay hold back from repeats, too.
    "other worker ids on MariaDB": Change("database", "database", workers=[1, 3], news=2),
    # Redis goes on below what the database had lent to it; then it is refused.
    "from Redis to the database": Change("redis", "database"),
    # What stands there is begun anew; old processes can't bring it back.
    "another layout in Redis and MariaDB": Change("redis", "redis", generator=NEW_LAYOUT),
    "another layout in ZooKeeper": Change("zookeeper", "zookeeper", generator=NEW_LAYOUT),
}


@pytest.mark.long
@pytest.mark.parametrize("change", [*CHANGES, *long(*MORE)])
def test_a_change_under_load(
    change: str, postgres: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """I1, I8: new ids begin past all that the old settings made, or may yet make."""
    asked = (CHANGES | MORE)[change]
    alias = request.getfixturevalue("mariadb") if "MariaDB" in change else postgres
    old = dense(LEASES[asked.was](request, alias, ALL))
    new = dense(LEASES[asked.to](request, alias, asked.workers), **asked.generator)
    moved_under_load(tmp_path, alias, old, new, news=asked.news)


def taken(setting: Idgen, count: int) -> list[int]:
    """Ids of two holders, as far past the time as they may be; then both have stopped."""
    entry = setting["GENERATORS"]["default"]
    both = {"default": entry, "second": {**entry, "NAMESPACE": "default"}}
    with override_settings(IDGEN={**setting, "GENERATORS": both}):
        return [number for alias in both for number in generators[alias].next_ids(count)]


def moved_while_stopped(
    alias: str, old: Idgen, new: Idgen, *, closed: str = "", said: str = "", **given: Any
) -> list[int]:
    """Between old processes and new ones the doctor moves what they share.

    Returns the ids of before, two ticks of two holders each. They are so far ahead that the new
    ones are not above them for reasons of time. ``said``: what it says where processes may run.
    """
    with override_settings(IDGEN=old):
        skip(generators=[], yes=True, until=YEARS_AHEAD)
    before = taken(old, FEW)
    fix = {"database": [alias], **given}
    with override_settings(IDGEN=new):
        if said:
            assert said in not_while_others_run("settings", **fix)
        words = mended("settings", others_stopped=True, **fix)
        assert f"database '{closed}': closed" in words or not closed
    after = taken(new, FEW)
    assert len({*before, *after}) == len(before) + len(after)
    assert min(after) > max(before)
    return before


@pytest.mark.parametrize("left_in", ["postgres", "mariadb"])
def test_from_fallback_leases_of_an_earlier_version(
    left_in: str, postgres: str, mariadb: str
) -> None:
    """I1: what the second registry has lent is gone past; in another database, if it is named.

    With the worker ids of both, which the first registry had not lent before.
    """
    second = on_database(left_in, workers=[1, 2])
    old = dense(on_database(postgres, workers=[0, 1]), **FAR)
    entry = old["GENERATORS"]["default"]
    left = {**dense(second, **FAR)["GENERATORS"]["default"], "NAMESPACE": "default/fallback"}
    with override_settings(IDGEN={**old, "GENERATORS": {"default": entry, "left": left}}):
        before = [*generators["default"].next_ids(FEW), *generators["left"].next_ids(240)]
    new = dense(on_database(postgres, workers=[0, 2]), **FAR)
    fix: dict[str, Any] = {"database": [postgres]}
    with override_settings(IDGEN=new):
        if left_in != postgres:
            assert f"--moved-from {left_in}" in doctor("settings", database=[postgres])[1]
            fix["moved_from"] = [left_in]
        not_while_others_run("settings", **fix)
        words = mended("settings", others_stopped=True, **fix)
        assert f"database '{left_in}': closed" in words
    assert min(taken(new, FEW)) > max(before)


@pytest.mark.long
def test_back_to_the_layout_of_before(postgres: str, tmp_path: Path) -> None:
    """While windows from then last: what was lent of it is remembered over another layout."""
    setting = dense(on_database(postgres), window=60)
    other = dense(on_database(postgres), **NEW_LAYOUT)
    with fleet(tmp_path) as processes:
        before = processes.start(setting, 2)
        for taker in before:
            taker.wait_until_ahead()
        highest = highest_of(before)
        for moved in (other, setting):
            with override_settings(IDGEN=moved):
                mended("settings", database=[postgres])
        (after,) = processes.start(setting, 1, name="new")
        for taker in (after, *before):
            taker.wait_for(MANY)
    processes.assert_no_repeats()
    assert lowest_of([after]) > highest


@pytest.fixture
def site(file: str) -> str:
    """The alias of a SQLite database that was migrated."""
    call_command("migrate", "django_idgen", verbosity=0)
    return file


@pytest.mark.long
def test_to_another_database(site: str, postgres: str) -> None:
    """The new one begins past the record in the old one, which lends to nobody any more."""
    old = dense(on_database(site, workers=[0, 2]), **FAR)
    new = dense(on_database(postgres, workers=[0, 2]), **FAR)
    with override_settings(IDGEN=old):
        generators["default"].next_id()
    with override_settings(IDGEN=new):
        code, words = doctor("settings", database=[postgres], fix=True, yes=True)
        assert (code, f"--moved-from {site}" in words) == (1, True), words
    said = "Start no process before the move"
    moved_while_stopped(postgres, old, new, closed=site, said=said, moved_from=[site])
    with override_settings(IDGEN=old):
        with pytest.raises(NamespaceMismatch) as refused:
            generators["default"].next_id()
        assert "Give this process the settings that the other processes have now" in str(
            refused.value
        )
        code, words = doctor("settings", database=[site])
    assert (code, "has moved to another registry since" in " ".join(words.split())) == (2, True)
    assert "closed=" not in f"{refused.value} {words}"
    moved_while_stopped(site, new, old, closed=postgres, moved_from=[postgres])


def test_a_claim_shows_nothing_of_what_another_book_lent() -> None:
    """I1, I8: a closed book is known by an era of all its worker ids, and by nothing less.

    Otherwise a move would leave the range of its worker ids behind, and a claim could repeat ids.
    What closes the past is no such era, and no reason to begin later: leases have their own fence.
    """
    layout = parse_layout("standard")
    words = {**layout.fingerprint(), "workers": [0, 1000]}
    closed = Stored({**words, "workers": [0, 1024]}, 1, 0, 5000, 100)
    ours = Stored(words, 1, 0, 9000, 100)
    known = layout_of(words)
    for era, is_known in (
        (Era(known, range(1023, 1024), 6000), False),
        (Era(known, range(1, 1025), 6000), False),
        (Era(known, range(1023), 6000), False),
        (Era(known, range(1024), 4999), False),
        (Era(known, range(1024), 6000, closes=True), False),
        (Era(known, range(1024), 5000), True),
    ):
        assert _is_past(closed, replace(ours, eras=(era,))) == (not is_known), era
    assert not _is_past(replace(closed, fingerprint=words), ours)
    eras = [Era(known, range(1000), 9000), Era(known, range(1024), 20_000, closes=True)]
    asked: dict[str, Any] = {"now_us": 0, "found": Found(), "trust_tables": False}
    assert fence_of(layout, range(1000), eras, **asked) == 9000


def test_tags_go_on_past_those_of_the_database_before(site: str, postgres: str) -> None:
    """Also a tag that is unknown in the new one, and without a row that has its ids.

    Two services that move one after the other: the higher mark of both counts.
    """
    old, new = idgen(on_database(site)), idgen(on_database(postgres))
    with override_settings(IDGEN=old):
        before = {tag: set(segments[tag].next_ids(2500)) for tag in ("both", "old")}
    with override_settings(IDGEN=new):
        segments["both"].next_id()
        segments["new"].next_ids(5000)
        segments.close()
        (warning,) = findings("tags", database=[postgres])
        assert (warning["severity"], warning["subject"]) == ("warning", "tag 'both'")
        assert f"--moved-from {site}" in warning["todo"]
        given: dict[str, Any] = {"database": [postgres], "moved_from": [site]}
        not_while_others_run("tags", **given)
        mended("tags", others_stopped=True, **given)
        for tag, ids in before.items():
            assert min(segments[tag].next_ids(2500)) > max(ids)
        assert findings("tags", **given) == []
        assert segments["new"].next_id() < 10_000  # the tag did not move


@pytest.mark.parametrize("broken_at", [2, *long(1)])
def test_a_run_that_was_broken_off_is_begun_again(
    broken_at: int, postgres: str, mariadb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its transactions was the last: the next run opens all past the old marks."""
    old = dense(on_database(mariadb, workers=[0, 2]), **FAR)
    new = dense(on_database(postgres, workers=[0, 2]), **FAR)
    with override_settings(IDGEN=old):
        before = [generators["default"].next_id() for _ in range(20)]
    whole, calls = StoredBook.rewrite, []

    def broken(self: StoredBook, change: Any) -> Any:
        calls.append(self)
        if len(calls) == broken_at:
            raise RegistryUnavailable("the power went")
        return whole(self, change)

    fix: dict[str, Any] = {"others_stopped": True}
    fix |= {"database": [postgres], "moved_from": [mariadb]}
    with override_settings(IDGEN=new):
        monkeypatch.setattr(StoredBook, "rewrite", broken)
        code, words = doctor("settings", fix=True, yes=True, **fix)
        assert (code, "the power went" in words) == (2, True), words
        monkeypatch.undo()
        mended("settings", **fix)
        assert generators["default"].next_id() > max(before)
    with (
        override_settings(IDGEN=old),
        pytest.raises(NamespaceMismatch, match="lends nothing here"),
    ):
        generators["default"].next_id()


def test_static_worker_ids(tmp_path: Path, postgres: str) -> None:
    """Not under a running process, nor unless all others are known to have stopped."""
    old, new = (_static_on(tmp_path / "marks", postgres, **more) for more in ({}, NEW_FAR_LAYOUT))
    with fleet(tmp_path) as processes:
        before = processes.start(old, 1)
        before[0].wait_until_ahead()
        with override_settings(IDGEN=new):
            not_while_others_run("settings", database=[postgres])
            given: dict[str, Any] = {"database": [postgres], "others_stopped": True}
            code, words = doctor("settings", fix=True, yes=True, **given)
            assert (code, "running process of this host" in words) == (2, True), words
            processes.stop("old")
            before[0].end()
            mended("settings", **given)
        after = processes.start(new, 2, name="new")
        for taker in after:
            taker.wait_for(FEW)
    processes.assert_no_repeats()
    assert lowest_of(after) > highest_of(before)


def _static_on(host: Path, alias: str, **changed: Any) -> Idgen:
    """A setting with worker ids of ``host``, a directory, and tags in the database ``alias``."""
    host.mkdir(exist_ok=True)
    static = {
        "BACKEND": "django_idgen.leases.static.StaticLeases",
        "OPTIONS": {"workers": [0, 2], "directory": str(host)},
    }
    return {**dense(static, **FAR | changed), "SEGMENTS": {"SOURCE": on_database(alias)}}


def test_each_host_begins_past_the_registry_before(tmp_path: Path, site: str) -> None:
    """I1: also those that move after the first one, which has closed it."""
    old = dense(on_database(site, workers=[0, 2]), **FAR)
    one, two = (_static_on(tmp_path / name, site) for name in ("one", "two"))
    before = moved_while_stopped(site, old, one, closed=site, moved_from=[site])
    with override_settings(IDGEN=two):
        (finding,) = findings("settings", database=[site])
        assert "does not know" in finding["what"]
        assert "it refuses nobody" in finding["why"]
        assert "All is well" in mended("settings", database=[site])
        assert findings("settings", database=[site]) == []
    assert min(taken(two, FEW)) > max(before)


def test_back_from_static_worker_ids(tmp_path: Path, site: str) -> None:
    """I1: the database opens again past a time that each host knows, and never without one.

    With its own settings alone: a time allows no other layout or worker ids.
    """
    old = dense(on_database(site, workers=[0, 2]), **FAR)
    new = _static_on(tmp_path / "host", site)
    moved_while_stopped(site, old, new, closed=site, moved_from=[site])
    other = dense(on_database(site, workers=[0, 3]), **FAR)
    with (
        override_settings(IDGEN=other),
        pytest.raises(CommandError, match=r"opened with workers=.*Restore those"),
    ):
        skip(generators=[], yes=True, until="2050-01-01T00:00:00Z")
    before = taken(new, FEW)
    with override_settings(IDGEN=new):
        shown = skip(generators=[], dry_run=True)
        (until,) = set(re.findall(r"\(([0-9-]+ [0-9:]+ UTC)\)", shown))
    with override_settings(IDGEN=old):
        code, words = doctor("settings", database=[site], fix=True, yes=True)
        words = " ".join(words.split())
        assert (code, "can't be seen from here" in words) == (2, True), words
        assert "idgen_skip --generators --until TIME" in words
        with pytest.raises(CommandError, match="opens again with --until"):
            skip(generators=[], yes=True)
        with pytest.raises(NamespaceMismatch):
            generators["default"].next_id()
        generators.close()
        skip(generators=[], yes=True, until=until)
        code, words = doctor("settings", database=[site])
        assert (code, "All is well" in words) == (0, True), words
    after = taken(old, FEW)
    assert min(after) > max(before)


@pytest.mark.parametrize("had_its_own", long(True, False))
def test_two_projects_leave_a_database(
    had_its_own: bool, tmp_path: Path, postgres: str, django_db_blocker: Any
) -> None:
    """I1: the first one closes the shared record. The second goes past it all the same.

    Also if it had a record of its own before, which was closed when it moved there.
    """
    shared = dense(on_database(postgres, workers=[0, 2]), **FAR)
    own = dense(on_database("default", workers=[0, 2]), **FAR)
    leave: dict[str, Any] = {"others_stopped": True, "moved_from": [postgres]}
    with django_db_blocker.unblock():
        if had_its_own:
            with empty_sqlite(tmp_path / "second.sqlite3"):
                call_command("migrate", "django_idgen", verbosity=0)
                taken(own, FEW)
                with override_settings(IDGEN=shared):
                    given = {**leave, "moved_from": ["default"]}
                    words = mended("settings", database=[postgres], **given)
                    assert "database 'default': closed" in words
        with override_settings(IDGEN=shared):
            skip(generators=[], yes=True, until=YEARS_AHEAD)
        before = taken(shared, FEW)
        for project in ("first", "second"):
            with empty_sqlite(tmp_path / f"{project}.sqlite3"):
                call_command("migrate", "django_idgen", verbosity=0)
                with override_settings(IDGEN=own):
                    words = mended("settings", database=["default"], **leave)
                    assert "generation" in words
                    closed = f"database '{postgres}': closed" in words
                    assert closed == (project == "first")
                    assert findings("settings", database=["default"], moved_from=[postgres]) == []
                assert min(taken(own, FEW)) > max(before)


def test_declining_moves_nothing(server_alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the settings that differ, what it would do, and asks.

    Settings that agree are nothing to tell, nor are those of a namespace that was never used.
    """
    with override_settings(IDGEN=idgen(on_database(server_alias))):
        assert findings("settings", database=[server_alias]) == []
        generators["default"].next_id()
        assert findings("settings", database=[server_alias]) == []
    before = NamespaceRecord.objects.using(server_alias).values().get()
    monkeypatch.setattr("builtins.input", lambda _prompt: "n")
    with override_settings(IDGEN=idgen(on_database(server_alias), **NEW_LAYOUT)):
        code, words = doctor("settings", database=[server_alias], fix=True)
    assert code == 2
    assert "fields=[['time', 41]" in words
    assert "Nothing was changed" in words
    assert NamespaceRecord.objects.using(server_alias).values().get() == before


def test_a_database_that_is_away_may_have_lent_too(postgres: str) -> None:
    """What was lent there can't be gone past, and the doctor says so."""
    with override_settings(IDGEN=idgen(on_database(postgres, workers=[0, 1]))):
        generators["default"].next_id()
    other = idgen(on_database(postgres, workers=[0, 2]))
    with override_settings(IDGEN=other), one_more(postgres):
        (finding,) = findings("settings", database=[postgres])
    assert "'gone' can't be asked" in finding["todo"]


# --- idgen_skip: after a database was put back ----------------------------------------


TABLES = (Installation, NamespaceRecord, WorkerLease, LeafAlloc)


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


@pytest.mark.long
@pytest.mark.parametrize("redis_is", ["restored", *long("kept")])
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
    ({"generators": [], "newest": "noon"}, "--newest must be a time"),
    ({"tags": ["a"], "newest": "2026-01-01T00:00Z"}, "--newest is for"),
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
            # A holder's lead over the time, which is part of it, shrinks while time passes.
            assert 0 <= int(asked) - int(done) <= 120
            generators.close()  # else it uses up the window that it has
            number = generators["default"].next_id()
            years.append(generators["default"].layout.unpack(number).created.year)  # type: ignore[attr-defined]
            generators.close()
    assert years[0] == 2040
    assert years[1] > 2041  # the other server may be as far ahead of the time as this one


def test_restores_in_a_row_add_up(postgres: str) -> None:
    """I1: each skips past the newest id, though the backup knows of none that ran years ahead.

    None doubles how far ids run ahead, whether the backup knows it or not. A server that goes on
    until a later time is as far ahead of that time.
    """
    setting = dense(on_database(postgres, workers=[0, 2]), **FAR)

    def newest() -> Any:
        """The time of a new id, in a new process."""
        generators.close()
        number = generators["default"].next_id()
        return generators["default"].layout.unpack(number).created  # type: ignore[attr-defined]

    with override_settings(IDGEN=setting):
        newest()
        kept = backup(postgres)
        skip(generators=[], yes=True, until=YEARS_AHEAD)
        found = [newest()]
        for knows_it in (False, True, True, False):
            restore(postgres, backup(postgres) if knows_it else kept)
            skip(generators=[], yes=True, newest=decoded(found[-1]))
            found.append(newest())
        skip(generators=[], yes=True, newest=decoded(found[-1]), until="2041-01-01T00:00:00Z")
        last = newest()
    assert sorted(set(found)) == found
    assert {each.year for each in found} == {2040}
    ahead = found[-1] - datetime.now(UTC)
    assert last > datetime(2041, 1, 1, tzinfo=UTC) + ahead


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
