"""Tags of a Leaf or a TinyID that goes on running, taken over."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_idgen import segments
from django_idgen.contrib.adopt.takeover import Takeover
from django_idgen.models import LeafAlloc
from django_idgen.process.tags import find_tag
from django_idgen.sources.history import who_issued
from tests.contrib.adopt.old_servers import Running, make
from tests.places import idgen_on, make_tables
from tests.server_tools import execute, unreachable
from tests.tiers import long

TAG = "orders"


PLACES = [("another", "postgres"), *long(("mariadb", "postgres"), ("postgres", "mariadb"))]
both_ways = pytest.mark.parametrize("places", PLACES, ids="-".join, indirect=True)


@pytest.fixture(params=PLACES[:2], ids="-".join)
def places(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The aliases of the old server's database, and of ours."""
    old, ours = request.param
    request.getfixturevalue(old)
    request.getfixturevalue(ours)
    make_tables(ours)
    with override_settings(IDGEN=idgen_on(ours)):
        yield old, ours


def take_over(kind: str, *databases: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("idgen_adopt", *databases, kind=kind, stdout=out, **{"yes": True, **options})
    return out.getvalue()


def marks(alias: str) -> dict[str, int]:
    return dict(LeafAlloc.objects.using(alias).values_list("biz_tag", "max_id"))


@both_ways
@pytest.mark.parametrize("kind", ["leaf", "go-leaf", "tinyid"])
def test_both_give_out_ids_and_none_twice(kind: str, places: tuple[str, str]) -> None:
    """I1: the old server serves on under load; what it gives and what we give is disjoint."""
    old, _ours = places
    make(kind, old, TAG, 500, 40, (1, 0))
    with Running(kind, old, TAG).serving() as server:
        server.wait_for(400)
        take_over(kind, old)
        mine = segments[TAG].next_ids(2000)
        server.wait_for(400)
        take_over(kind, old)  # again: it is not moved
        mine += segments[TAG].next_ids(2000)
    assert len(set(server.ids)) == len(server.ids)
    assert len(set(mine)) == 4000
    assert not set(mine) & set(server.ids)
    assert min(mine) > max(server.ids)
    assert max(mine) - min(mine) < 10_000


@pytest.mark.parametrize("kind", ["leaf", "go-leaf", "tinyid"])
def test_what_is_taken_over(kind: str, places: tuple[str, str]) -> None:
    """Step and description come along; the old table stays as it was; the history knows."""
    old, ours = places
    make(kind, old, TAG, 5000, 40, (1, 0))
    table = "tiny_id_info" if kind == "tinyid" else "leaf_alloc"
    before = execute(old, f"SELECT * FROM {table}")
    out = take_over(kind, old, margin=1000)
    assert "this project begins at 6001" in out
    row = LeafAlloc.objects.using(ours).get()
    assert (row.max_id, row.step) == (6001, 40)
    assert row.description == ("" if kind == "tinyid" else "of old")
    assert execute(old, f"SELECT * FROM {table}") == before
    assert [each.holder for each in who_issued(TAG, 5500, database=ours)] == [f"{kind} in {old}"]


def test_tinyid_that_is_divided(places: tuple[str, str]) -> None:
    """Ours begin above all databases of a tag; one that is not named is asked for."""
    old, ours = places
    make("tinyid", old, TAG, 100, 10, (2, 0))
    with pytest.raises(CommandError, match=r"divided among 2 databases.*Name each"):
        take_over("tinyid", old)
    make("tinyid", ours, TAG, 90_000_000, 10, (2, 1))
    with (
        Running("tinyid", old, TAG).serving() as one,
        Running("tinyid", ours, TAG).serving() as two,
    ):
        take_over("tinyid", old, ours)
        mine = segments[TAG].next_ids(500)
        one.wait_for(100)
        two.wait_for(100)
    assert len({*mine, *one.ids, *two.ids}) == 500 + len(one.ids) + len(two.ids)
    assert {number % 2 for number in one.ids} == {0}
    assert {number % 2 for number in two.ids} == {1}
    assert min(mine) > 90_000_000


def test_tinyids_own_sample(places: tuple[str, str]) -> None:
    """I1: of its two tags one is divided, and one database named: the other one is taken over.

    Once its row says that no other database has a part of it, the second goes on, too. Both
    servers give out ids all the while, and none comes twice.
    """
    old, ours = places
    make("tinyid", old, "test", 1, 100_000, (1, 0))
    execute(old, "INSERT INTO tiny_id_info VALUES (2, 'test_odd', 1, 1, 100000, 2, 1, 0)")
    with (
        Running("tinyid", old, "test", threads=1).serving() as whole,
        Running("tinyid", old, "test_odd", threads=1).serving() as odd,
    ):
        whole.wait_for(1)
        odd.wait_for(1)
        with pytest.raises(CommandError, match=r"(?s)^Left out: 'test_odd'\..*delta to 1"):
            take_over("tinyid", old)
        assert set(marks(ours)) == {"test"}
        mine = segments["test"].next_ids(2000)
        execute(old, "UPDATE tiny_id_info SET delta = 1, remainder = 0 WHERE biz_type = 'test_odd'")
        assert "test_odd: begins at" in take_over("tinyid", old)
        mine_odd = segments["test_odd"].next_ids(2000)
        whole.wait_for(1)
        odd.wait_for(1)
    assert len({*mine, *whole.ids}) == 2000 + len(whole.ids)
    assert len({*mine_odd, *odd.ids}) == 2000 + len(odd.ids)


def test_one_tag_holds_up_no_other(places: tuple[str, str]) -> None:
    """What can't be taken over is named with its reason; a dry run names it, too."""
    old, ours = places
    make("leaf", old, TAG, 1, 10, (1, 0))
    rows = "('', 1, 10), ('full', 9223372036854775000, 10), ('last', 1, 10)"
    execute(old, f"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES {rows}")
    why = r"(?s)^Left out: ''\. .*must not be empty.*Rename it there.*'full'\. .*smaller --margin"
    for dry_run in (True, False):
        with pytest.raises(CommandError, match=why):
            take_over("leaf", old, dry_run=dry_run)
        if dry_run:
            assert find_tag(TAG) is None
    assert set(marks(ours)) == {TAG, "last"}
    execute(old, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('later', 1, 10)")
    assert "later: begins at" in take_over("leaf", old, tag="later")


def test_a_name_that_our_database_takes_for_another(mariadb: str, postgres: str) -> None:
    """It is left out, and the tags after it are taken over."""
    make_tables(mariadb)
    with override_settings(IDGEN=idgen_on(mariadb)):
        make("leaf", postgres, "Orders", 1, 10, (1, 0))
        rows = "('orders', 1, 10), ('zebras', 1, 10)"
        execute(postgres, f"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES {rows}")
        with pytest.raises(CommandError, match=r"^Left out: '(O|o)rders'\. "):
            take_over("leaf", postgres)
        assert len(marks(mariadb)) == 2
        assert "zebras" in marks(mariadb)


def test_run_again(places: tuple[str, str]) -> None:
    """New tags are taken over; ours are never lowered; it says what the old one has left."""
    old, ours = places
    make("leaf", old, TAG, 1, 10, (1, 0))
    take_over("leaf", old, margin=1000)
    segments[TAG].next_id()
    stands = marks(ours)[TAG]
    out = take_over("leaf", old, margin=1000, yes=False)
    assert "the old server has 1000 ids left" in out
    assert "Nothing was done yet" not in out  # there is nothing to do
    execute(old, "UPDATE leaf_alloc SET max_id = 301")
    execute(old, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('later', 7, 10)")
    out = take_over("leaf", old, margin=1000)
    assert "the old server has 700 ids left" in out
    assert marks(ours) == {TAG: stands, "later": 1008}
    execute(old, f"UPDATE leaf_alloc SET max_id = 5000 WHERE biz_tag = '{TAG}'")
    with pytest.raises(CommandError, match="ids that were given out here, too: orders"):
        take_over("leaf", old, margin=1000)
    assert marks(ours)[TAG] == 6001


def test_broken_off(places: tuple[str, str]) -> None:
    """Killed between the two things that it writes, run again it does the second one, too."""
    old, ours = places
    make("leaf", old, TAG, 1000, 10, (1, 0))
    segments[TAG].next_id()
    takeover = Takeover("leaf", [old], margin=100)
    takeover._remember(takeover.moves[0])
    assert marks(ours)[TAG] < 1000
    assert "this project begins at 1101" in take_over("leaf", old, margin=100)
    assert marks(ours)[TAG] == 1101


def test_a_tag_that_both_have(places: tuple[str, str]) -> None:
    """The higher one counts: ours is raised above theirs, and not lowered to it."""
    old, ours = places
    make("leaf", old, "low", 1000, 10, (1, 0))
    execute(old, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('high', 5, 10)")
    segments["low"].next_id()
    segments["high"].next_id()
    LeafAlloc.objects.using(ours).filter(pk="high").update(max_id=10**9)
    out = take_over("leaf", old, margin=100)
    assert "may have given out ids" in out
    assert marks(ours) == {"low": 1101, "high": 10**9}


def test_dry_run_changes_nothing(places: tuple[str, str]) -> None:
    """A dry run says where ours would begin."""
    old, _ours = places
    make("leaf", old, TAG, 1, 10, (1, 0))
    out = io.StringIO()
    call_command("idgen_adopt", old, kind="leaf", dry_run=True, stdout=out)
    assert f"{TAG}: the old server is at 2; this project begins at 10000002" in out.getvalue()
    assert segments[TAG].next_id() == 1


def test_leafs_table_in_our_database(server_alias: str) -> None:
    """It is shared already: nothing is to be taken over."""
    make("leaf", server_alias, TAG, 1, 10, (1, 0))
    call_command("migrate", "django_idgen", database=server_alias, verbosity=0)
    with (
        override_settings(IDGEN=idgen_on(server_alias)),
        pytest.raises(CommandError, match="there is nothing to take over"),
    ):
        take_over("leaf", server_alias)


def test_what_is_refused(places: tuple[str, str]) -> None:
    """Unknown aliases, no table, an unknown tag, an impossible margin: in words."""
    old, ours = places
    with pytest.raises(CommandError, match="no database 'nowhere'"):
        take_over("leaf", "nowhere")
    with pytest.raises(CommandError, match="has no table of a tinyid: tiny_id_info does not exist"):
        take_over("tinyid", old)
    make("leaf", old, TAG, 1, 10, (1, 0))
    with pytest.raises(CommandError, match="no tag 'other'"):
        take_over("leaf", old, tag="other")
    with pytest.raises(CommandError, match="not in 'default'"):
        take_over("leaf", old, into="default")
    with pytest.raises(CommandError, match="only TinyID shares"):
        take_over("leaf", old, ours)
    with pytest.raises(CommandError, match="--margin must be"):
        take_over("leaf", old, margin=0)
    with unreachable(old), pytest.raises(CommandError, match="does not answer"):
        take_over("leaf", old)
