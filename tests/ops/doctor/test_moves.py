"""The safe change of layout, epoch, registry and worker ids, under real fleets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import NamespaceMismatch, RegistryUnavailable
from django_idgen.leases.book_registry import BookInStore
from django_idgen.models import NamespaceRecord
from tests.ops.doctor.asking import doctor, findings
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
from tests.places import empty_sqlite
from tests.server_tools import one_more
from tests.tiers import long

NEW_LAYOUT = {"LAYOUT": {"time": 40, "worker": 2, "sequence": 3, "tick": 0.1}}
NEW_FAR_LAYOUT = {"LAYOUT": {"time": 40, "worker": 2, "sequence": 2, "tick": 2}}
"""Their ids are as high as the dense ones of the same time: each is one that they may have had."""
ALL = [0, 2]
"""The worker ids: as many as there are old processes, so that the new ones need the same."""

MANY, FEW = 40, 4
"""Ids of a dense process: those of half a second; those of two ticks if it is far ahead."""
YEARS_AHEAD = "2040-01-01T00:00:00Z"


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
            code, words = doctor("settings", database=[alias], fix=True, yes=True)
            assert code == 0, words
            assert "All is well" in words
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


CHANGES = {
    "another layout": Change("database", "database", generator=NEW_LAYOUT),
    # All the marks are forgotten with that: only the fence holds back.
    "other worker ids in Redis": Change("redis", "redis", workers=[1, 3]),
    # At once: no window of the old fleet has to end first.
    "from the database to Redis": Change("database", "redis"),
    # Its node is made by the first of the new processes.
    "from the database to ZooKeeper": Change("database", "zookeeper"),
}
MORE = {
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
        call("idgen_skip", generators=[], yes=True, until=YEARS_AHEAD)
    before = taken(old, FEW)
    fix = {"database": [alias], "fix": True, "yes": True, **given}
    with override_settings(IDGEN=new):
        if said:
            code, words = doctor("settings", **fix)
            assert (code, "not without --others-stopped" in words) == (2, True), words
            assert said in words
        code, words = doctor("settings", others_stopped=True, **fix)
        assert code == 0, words
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
        before = [*generators["default"].next_ids(FEW), *generators["left"].next_ids(60)]
    new = dense(on_database(postgres, workers=[0, 2]), **FAR)
    fix: dict[str, Any] = {"database": [postgres], "fix": True, "yes": True}
    with override_settings(IDGEN=new):
        if left_in != postgres:
            assert f"--moved-from {left_in}" in doctor("settings", database=[postgres])[1]
            fix["moved_from"] = [left_in]
        code, words = doctor("settings", **fix)
        assert (code, "not without --others-stopped" in words) == (2, True), words
        code, words = doctor("settings", others_stopped=True, **fix)
        assert (code, f"database '{left_in}': closed" in words) == (0, True), words
    assert min(taken(new, FEW)) > max(before)


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
                code, words = doctor("settings", fix=True, yes=True, database=[postgres])
                assert code == 0, words
        (after,) = processes.start(setting, 1, name="new")
        for taker in (after, *before):
            taker.wait_for(MANY)
    processes.assert_no_repeats()
    assert lowest_of([after]) > highest


@pytest.fixture
def site(file: str) -> str:
    """The alias of a SQLite database that was migrated."""
    call("migrate", app_label="django_idgen", verbosity=0)
    return file


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
        fix = {**given, "fix": True, "yes": True}
        code, words = doctor("tags", **fix)
        assert (code, "not without --others-stopped" in words) == (2, True), words
        code, words = doctor("tags", others_stopped=True, **fix)
        assert code == 0, words
        for tag, ids in before.items():
            assert min(segments[tag].next_ids(2500)) > max(ids)
        assert findings("tags", **given) == []
        assert segments["new"].next_id() < 10_000  # the tag did not move


@pytest.mark.parametrize("broken_at", [1, 2])
def test_a_run_that_was_broken_off_is_begun_again(
    broken_at: int, postgres: str, mariadb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its transactions was the last: the next run opens all past the old marks."""
    old = dense(on_database(mariadb, workers=[0, 2]), **FAR)
    new = dense(on_database(postgres, workers=[0, 2]), **FAR)
    with override_settings(IDGEN=old):
        before = [generators["default"].next_id() for _ in range(20)]
    whole, calls = BookInStore.rewrite, []

    def broken(self: BookInStore, change: Any) -> Any:
        calls.append(self)
        if len(calls) == broken_at:
            raise RegistryUnavailable("the power went")
        return whole(self, change)

    fix: dict[str, Any] = {"fix": True, "yes": True, "others_stopped": True}
    fix |= {"database": [postgres], "moved_from": [mariadb]}
    with override_settings(IDGEN=new):
        monkeypatch.setattr(BookInStore, "rewrite", broken)
        code, words = doctor("settings", **fix)
        assert (code, "the power went" in words) == (2, True), words
        monkeypatch.undo()
        code, words = doctor("settings", **fix)
        assert code == 0, words
        assert generators["default"].next_id() > max(before)
    with (
        override_settings(IDGEN=old),
        pytest.raises(NamespaceMismatch, match="lends nothing here"),
    ):
        generators["default"].next_id()


def test_static_worker_ids(tmp_path: Path, postgres: str) -> None:
    """Not under a running process, nor unless all others are known to have stopped."""
    marks = tmp_path / "marks"
    marks.mkdir()
    static = {
        "BACKEND": "django_idgen.leases.static.StaticLeases",
        "OPTIONS": {"workers": [0, 2], "directory": str(marks)},
    }
    old, new = dense(static, **FAR), dense(static, **FAR | NEW_FAR_LAYOUT)
    for setting in (old, new):
        setting["SEGMENTS"] = {"SOURCE": on_database(postgres)}
    with fleet(tmp_path) as processes:
        before = processes.start(old, 1)
        before[0].wait_until_ahead()
        with override_settings(IDGEN=new):
            code, words = doctor("settings", fix=True, yes=True, database=[postgres])
            assert (code, "not without --others-stopped" in words) == (2, True), words
            given: dict[str, Any] = {"fix": True, "yes": True, "others_stopped": True}
            code, words = doctor("settings", database=[postgres], **given)
            assert (code, "running process of this host" in words) == (2, True), words
            processes.stop("old")
            before[0].end()
            code, words = doctor("settings", database=[postgres], **given)
            assert code == 0, words
        after = processes.start(new, 2, name="new")
        for taker in after:
            taker.wait_for(FEW)
    processes.assert_no_repeats()
    assert lowest_of(after) > highest_of(before)


def _static_on(host: Path, alias: str) -> Idgen:
    """A setting with worker ids of ``host``, a directory, and tags in the database ``alias``."""
    host.mkdir(exist_ok=True)
    static = {
        "BACKEND": "django_idgen.leases.static.StaticLeases",
        "OPTIONS": {"workers": [0, 2], "directory": str(host)},
    }
    return {**dense(static, **FAR), "SEGMENTS": {"SOURCE": on_database(alias)}}


def test_each_host_begins_past_the_registry_before(tmp_path: Path, site: str) -> None:
    """I1: also those that move after the first one, which has closed it."""
    old = dense(on_database(site, workers=[0, 2]), **FAR)
    one, two = (_static_on(tmp_path / name, site) for name in ("one", "two"))
    before = moved_while_stopped(site, old, one, closed=site, moved_from=[site])
    with override_settings(IDGEN=two):
        (finding,) = findings("settings", database=[site])
        assert "does not know" in finding["what"]
        assert "it refuses nobody" in finding["why"]
        code, words = doctor("settings", database=[site], fix=True, yes=True)
        assert (code, "All is well" in words) == (0, True), words
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
        call("idgen_skip", generators=[], yes=True, until="2050-01-01T00:00:00Z")
    before = taken(new, FEW)
    with override_settings(IDGEN=new):
        shown = call("idgen_skip", generators=[], dry_run=True)
        (until,) = set(re.findall(r"\(([0-9-]+ [0-9:]+ UTC)\)", shown))
    with override_settings(IDGEN=old):
        code, words = doctor("settings", database=[site], fix=True, yes=True)
        words = " ".join(words.split())
        assert (code, "can't be seen from here" in words) == (2, True), words
        assert "idgen_skip --generators --until TIME" in words
        with pytest.raises(CommandError, match="opens again with --until"):
            call("idgen_skip", generators=[], yes=True)
        with pytest.raises(NamespaceMismatch):
            generators["default"].next_id()
        generators.close()
        call("idgen_skip", generators=[], yes=True, until=until)
        code, words = doctor("settings", database=[site])
        assert (code, "All is well" in words) == (0, True), words
    after = taken(old, FEW)
    assert min(after) > max(before)


@pytest.mark.parametrize("had_its_own", [True, *long(False)])
def test_two_projects_leave_a_database(
    had_its_own: bool, tmp_path: Path, postgres: str, django_db_blocker: Any
) -> None:
    """I1: the first one closes the shared record. The second goes past it all the same.

    Also if it had a record of its own before, which was closed when it moved there.
    """
    shared = dense(on_database(postgres, workers=[0, 2]), **FAR)
    own = dense(on_database("default", workers=[0, 2]), **FAR)
    leave: dict[str, Any] = {"fix": True, "yes": True, "others_stopped": True}
    leave["moved_from"] = [postgres]
    with django_db_blocker.unblock():
        if had_its_own:
            with empty_sqlite(tmp_path / "second.sqlite3"):
                call("migrate", app_label="django_idgen", verbosity=0)
                taken(own, FEW)
                with override_settings(IDGEN=shared):
                    given = {**leave, "moved_from": ["default"]}
                    code, words = doctor("settings", database=[postgres], **given)
                    assert (code, "database 'default': closed" in words) == (0, True), words
        with override_settings(IDGEN=shared):
            call("idgen_skip", generators=[], yes=True, until=YEARS_AHEAD)
        before = taken(shared, FEW)
        for project in ("first", "second"):
            with empty_sqlite(tmp_path / f"{project}.sqlite3"):
                call("migrate", app_label="django_idgen", verbosity=0)
                with override_settings(IDGEN=own):
                    code, words = doctor("settings", database=["default"], **leave)
                    assert (code, "generation" in words) == (0, True), words
                    closed = f"database '{postgres}': closed" in words
                    assert closed == (project == "first")
                    assert findings("settings", database=["default"], moved_from=[postgres]) == []
                assert min(taken(own, FEW)) > max(before)


def call(command: str, **options: Any) -> str:
    """What a command wrote."""
    out = StringIO()
    call_command(command, stdout=out, **options)
    return out.getvalue()


def test_declining_moves_nothing(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the settings that differ, what it would do, and asks."""
    with override_settings(IDGEN=idgen(on_database(postgres))):
        generators["default"].next_id()
    before = NamespaceRecord.objects.using(postgres).values().get()
    monkeypatch.setattr("builtins.input", lambda _prompt: "n")
    with override_settings(IDGEN=idgen(on_database(postgres), **NEW_LAYOUT)):
        code, words = doctor("settings", database=[postgres], fix=True)
    assert code == 2
    assert "fields=[['time', 41]" in words
    assert "Nothing was changed" in words
    assert NamespaceRecord.objects.using(postgres).values().get() == before


def test_a_database_that_is_away_may_have_lent_too(postgres: str) -> None:
    """What was lent there can't be gone past, and the doctor says so."""
    with override_settings(IDGEN=idgen(on_database(postgres, workers=[0, 1]))):
        generators["default"].next_id()
    other = idgen(on_database(postgres, workers=[0, 2]))
    with override_settings(IDGEN=other), one_more(postgres):
        (finding,) = findings("settings", database=[postgres])
    assert "'gone' can't be asked" in finding["todo"]


def test_settings_that_agree_are_nothing_to_tell(server_alias: str) -> None:
    """Nor are those of a namespace that was never used."""
    with override_settings(IDGEN=idgen(on_database(server_alias))):
        assert findings("settings", database=[server_alias]) == []
        generators["default"].next_id()
        assert findings("settings", database=[server_alias]) == []
