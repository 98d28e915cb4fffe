"""The benchmark: its proof, its figures, and the command with good and bad arguments."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
import uuid
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from io import StringIO
from itertools import chain, count, islice, pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol
from xml.etree import ElementTree

import matplotlib
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, InterfaceError, connections
from django.test import override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from django_idgen import generators, segments
from django_idgen.contrib.bench.inserts import lines_of_inserts
from django_idgen.contrib.bench.measure import Plan, in_threads, run_here, take
from django_idgen.contrib.bench.proof import Fault, Journal, prove
from django_idgen.contrib.bench.report import cells, ratio, rows_of_ids, shown, spread
from django_idgen.contrib.bench.scratch import scratch_tags
from django_idgen.contrib.bench.targets import PEERS, SLOW, BenchFailed, Peer, auto_increment
from django_idgen.core.generator import Generator
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.ops.tags.edits import make_tag, pause_tag
from django_idgen.process.tags import find_tag
from tests.benchmarks.generators import segment, snowflake
from tests.benchmarks.timing import interleaved
from tests.server_tools import wait_for_threads

POOL = "django_idgen.sources.pool.PoolSource"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _small_heap() -> Iterator[None]:
    """Whatever other tests left in memory is not looked through before each round."""
    gc.freeze()
    yield
    gc.unfreeze()


# --- the proof ---------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sets(st.integers(1, 40)), max_size=5), st.integers(1, 30))
def test_every_repeat_is_counted_however_little_fits_in_memory(
    tmp_path_factory: pytest.TempPathFactory, threads: list[set[int]], in_memory: int
) -> None:
    """Those of a thread rise, so an id can only repeat in another thread, which is named."""
    folder = tmp_path_factory.mktemp("ids")
    for number, ids in enumerate(threads):
        journal, rising = Journal("bench", folder / f"thread {number}"), sorted(ids)
        for at in range(0, len(rising) + 1, 3):
            journal.add(rising[at : at + 3])
    paths = sorted(folder.iterdir())
    seen = Counter(chain.from_iterable(threads))
    repeats = seen.total() - len(seen)
    if not repeats:
        assert prove("bench", paths, in_memory=in_memory) == len(seen)
        return
    with pytest.raises(Fault, match=f"^bench: {repeats} of {seen.total()} ids REPEAT") as caught:
        prove("bench", paths, in_memory=in_memory)
    example = min(value for value, times in seen.items() if times > 1)
    holders = [f"thread {number}" for number, ids in enumerate(threads) if example in ids]
    assert f"such as {example}, given to {' and to '.join(holders)}." in str(caught.value)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_the_first_place_where_ids_do_not_rise_is_named(
    tmp_path_factory: pytest.TempPathFactory, taken: list[int]
) -> None:
    """Within what is added at once, and from one time to the next."""
    journal = Journal("bench", tmp_path_factory.mktemp("ids") / "thread 0")
    falls = [
        f"^bench: thread 0 got {one}, then {two}: " for one, two in pairwise(taken) if two <= one
    ]
    with pytest.raises(Fault, match=falls[0]) if falls else nullcontext():
        for at in range(0, len(taken), 3):
            journal.add(taken[at : at + 3])


@pytest.mark.parametrize("value", [None, 0, -1, 2**63, "8", 8.5, True])
def test_what_is_no_id_is_named(tmp_path: Path, value: object) -> None:
    """A generator that returns 0, -1, None or worse is caught, not counted."""
    with pytest.raises(BenchFailed, match=f"thread 0 got {value!r}, which is not an id"):
        Journal("bench", tmp_path / "thread 0").add([7, value])


@pytest.mark.long
def test_the_proof_needs_no_more_memory_for_more_ids(tmp_path: Path) -> None:
    """Half a million ids of 8 threads are compared in what 20,000 take."""
    for thread in range(8):
        with (tmp_path / str(thread)).open("wb") as file:
            array("q", range(thread + 1, 500_001, 8)).tofile(file)
    tracemalloc.start()
    assert prove("bench", sorted(tmp_path.iterdir()), in_memory=20_000) == 500_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


# --- measuring and figures ---------------------------------------------------


@given(st.integers(1, 3_000_000), st.integers(1, 9), st.integers(1, 9))
def test_a_plan_takes_the_ids_asked_for(count: int, threads: int, processes: int) -> None:
    """Those of all threads and processes together, rounded up to whole rounds."""
    plan = Plan({"default": "default"}, count, threads, processes)
    rounds = threads * processes * plan.rounds
    assert plan.rounds >= 7
    assert count <= plan.ids("default") * rounds < count + rounds


def test_a_slow_peer_gives_fewer_ids() -> None:
    """A million inserts would take minutes."""
    plan = Plan({"default": "default", "auto-increment": "peer:auto-increment"}, 1_000_000, 4, 2)
    assert plan.ids("auto-increment") * plan.rounds * 8 == pytest.approx(20_000, rel=0.01)
    assert plan.ids("default") * plan.rounds * 8 >= 1_000_000


@pytest.mark.parametrize(("total", "batch"), [(10, 1), (10, 3), (10, 10), (3, 10)])
def test_batches_add_up(total: int, batch: int) -> None:
    """A last, smaller batch makes up the number of ids, in order."""
    with segment() as made:
        taken = take(made, total, batch)
    assert list(chain.from_iterable(taken)) == list(range(1, total + 1))


def test_a_thread_that_fails_is_heard() -> None:
    """What a job raises in its thread is raised to the caller."""
    turns = count()

    def job() -> int:
        if (turn := next(turns)) == 2:
            raise LookupError("two")
        return turn

    with ThreadPoolExecutor(4) as pool:
        with pytest.raises(LookupError, match="two"):
            in_threads(job, pool, 4)
        assert len(set(in_threads(job, pool, 4)[1])) == 4, "the pool goes on"


def test_no_thread_waits_for_one_that_never_begins() -> None:
    """Ctrl-C may come when some have begun and others have not."""

    class Interrupted(ThreadPoolExecutor):
        def map(self, fn: Any, *_args: Any, **_options: Any) -> Any:
            begun.append(self.submit(fn, 0))
            raise KeyboardInterrupt

    begun: list[Future[Any]] = []
    with Interrupted(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            in_threads(list, pool, 2)
        assert isinstance(begun[0].exception(timeout=30), threading.BrokenBarrierError)


def test_rounds_are_interleaved_and_turn() -> None:
    """Each job runs once a round, and none is always the first."""
    order: list[int] = []

    def job(number: int) -> float:
        order.append(number)
        return float(number)

    jobs: list[Callable[[], float]] = [lambda: job(0), lambda: job(1), lambda: job(2)]
    assert interleaved(jobs, 3) == [[0.0] * 3, [1.0] * 3, [2.0] * 3]
    assert order == [0, 1, 2, 1, 2, 0, 2, 0, 1]


@pytest.mark.django_db
@pytest.mark.parametrize("name", list(PEERS))
def test_a_peer_gives_ids_wherever_its_package_is(name: str) -> None:
    """Each can be measured, one id at a time and in batches; a missing package is named."""
    modules = {"uuid4-rust": "uuid_utils", "snowflake-id": "snowflake", "ksuid": "cyksuid"}
    modules |= {"tsid": "tsidpy", "uuid7": "uuid_utils"}
    module = modules.get(name, name if name in {"uuid6", "ulid", "sonyflake"} else "uuid")
    if find_spec(module) is None and not (name == "uuid7" and hasattr(uuid, "uuid7")):
        with pytest.raises(ImportError, match=f"{PEERS[name][0]} is not installed"):
            Peer(name)
        return
    peer = Peer(name)
    assert len({peer.next_id(), *peer.next_ids(3)}) == 4


def test_auto_increment_is_measured_on_servers(server_alias: str) -> None:
    """Threads at once have a table and a connection each."""
    next_id = auto_increment(server_alias)
    with ThreadPoolExecutor(4) as pool:
        _, taken = in_threads(lambda: [next_id() for _ in range(50)], pool, 4)
        assert taken == [list(range(1, 51))] * 4
        in_threads(connections.close_all, pool, 4)


@pytest.mark.parametrize("fails", [False, True])
def test_connections_of_a_peer_are_closed(
    server_alias: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Also after a failure."""
    used: dict[int, Any] = {}

    def make() -> Callable[[], int]:
        next_id = auto_increment(server_alias)

        def noted() -> int:
            value = next_id()
            used[threading.get_ident()] = connections[server_alias]
            if fails and value > 5:
                raise LookupError
            return value

        return noted

    monkeypatch.setitem(PEERS, "auto-increment", ("Django", make))
    with pytest.raises(LookupError) if fails else nullcontext():
        run_here(Plan({"a": "peer:auto-increment"}, 70, threads=3), tmp_path)
    assert len(used) == 3
    assert all(each.connection is None for each in used.values())


def test_every_id_of_every_thread_is_compared(tmp_path: Path) -> None:
    """Ids of the timed passes and of the latency passes all enter the proof, and hold."""
    plan = Plan({"ours": "segment:bench", "count": "peer:count"}, count=2_800, threads=4)
    with segment() as made, segments.override("bench", made):
        ours, theirs = rows_of_ids(plan, [run_here(plan, tmp_path)], tmp_path)
        assert made.stats().issued == ours["compared"] == 2 * 2_800 + 4
    assert theirs["compared"] is None
    assert ours["ratio"] is None  # to itself


def test_medians_come_with_their_spread() -> None:
    """The range of the middle half of the rounds; one bad round of seven moves nothing."""
    calm = spread([100, 101, 102, 103, 104, 105, 106])
    assert calm == {"low": 101, "median": 103, "high": 105}
    assert spread([100, 101, 102, 103, 104, 105, 9000]) == calm


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ([98, 99, 101, 104, 108, 109, 110], "not distinguishable"),
        ([200, 201, 205, 206, 207, 208, 209], "2x"),
        ([50.1, 51, 52, 53, 54, 55, 56], "0.51x"),
        ([26_123, 26_200, 26_300, 26_444, 26_500, 26_600, 26_700], "260x"),
    ],
)
def test_a_ratio_is_shown_where_the_ranges_are_apart(rounds: list[float], words: str) -> None:
    """Where they overlap, a difference could be chance."""
    base = spread([100, 101, 102, 103, 104, 105, 106])
    figure = spread(rounds)
    assert cells(figure, base)[-1] == words
    assert cells(base, base)[-1] == "1x"
    assert (ratio(figure, base) is None) == (words == "not distinguishable")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.4, "0.4 ns"), (41.37, "41 ns"), (137.2, "140 ns"), (999.9, "1000 ns"), (1234.5, "1.2 µs"),
     (31_480, "31 µs"), (1.21e6, "1.2 ms"), (2e9, "2 s")],
)  # fmt: skip
def test_no_false_digits_are_shown(value: float, text: str) -> None:
    """Rounds of one run differ in the second digit already."""
    assert shown(value) == text


def test_json_has_no_false_digits() -> None:
    """Three digits: nobody copies more into a report."""
    assert spread([41.37654, 41.4, 41.5]) == {"low": 41.4, "median": 41.4, "high": 41.5}


# --- the command -------------------------------------------------------------


class Overlapping:
    """Two generators over sources that know nothing of each other, asked in turn."""

    def __init__(self) -> None:
        self.made = [segment(), segment()]
        self.turn = count()

    def next_id(self) -> int:
        return self.made[next(self.turn) % 2].next_id()

    def next_ids(self, n: int) -> list[int]:
        return [self.next_id() for _ in range(n)]


class Bench(Protocol):
    def __call__(self, *args: str, **options: Any) -> tuple[str, str]: ...


def run(*args: str, **options: Any) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("idgen_bench", *args, stdout=out, stderr=err, **options)
    return out.getvalue(), err.getvalue()


IN_MEMORY = {"SEGMENTS": {"SOURCE": {"BACKEND": "django_idgen.sources.memory.MemorySource"}}}


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The command, with a generator ``bench`` and a tag ``bench`` that need no database."""
    with (
        override_settings(IDGEN=IN_MEMORY),
        snowflake(max_ahead=1.0) as stamped,
        segment() as counted,
        generators.override("bench", stamped),
        segments.override("bench", counted),
    ):
        yield run


def test_a_generator_that_keeps_no_counts(bench: Bench) -> None:
    """One of the project's own, whose ``stats()`` is the base class's, is measured like others."""

    class Counting(Generator):
        def __init__(self) -> None:
            self._ids = count(1)

        def next_id(self) -> int:
            return next(self._ids)

        def next_ids(self, n: int) -> list[int]:
            return list(islice(self._ids, n))

    with generators.override("mine", Counting()):
        out, err = bench("mine", "--count=1000")
    assert "mine: 2,003 ids of 1 thread(s) of 1 process(es) compared: all of a thread rose" in out
    assert err == ""


@pytest.mark.django_db(transaction=True)
def test_the_command_measures_and_proves(bench: Bench, tmp_path: Path) -> None:
    """Both kinds of generators, a peer, threads and batches; the table says what was compared."""
    report = tmp_path / "report.json"
    out, err = bench(
        "bench", "segment:bench", "--count=4200", "--threads=3", "--batch=10",
        "--against=uuid4,auto-increment", f"--json={report}",
    )  # fmt: skip
    assert "bench: 8,403 ids of 3 thread(s) of 1 process(es) compared: all of a thread rose" in out
    assert "segment:bench: 8,403 ids of 3 thread(s) of 1 process(es) compared" in out
    assert "as a multiple of that of bench; less is faster" in out
    assert err == ""
    found = json.loads(report.read_text())
    rows = found["rows"]
    assert [row["name"] for row in rows] == ["bench", "segment:bench", "uuid4", "auto-increment"]
    assert found["environment"]["cpus"] == os.cpu_count()
    assert found["environment"]["databases"]["default"] == "sqlite"
    assert [row["compared"] for row in rows] == [8_403, 8_403, None, None]
    for row in rows:
        spans = row["latency_ns"]
        assert 0 < spans["p50"] <= spans["p99"] <= spans["p99.9"] <= spans["max"]
        assert row["ns_per_id"]["low"] <= row["ns_per_id"]["median"] <= row["ns_per_id"]["high"]


@pytest.mark.django_db(transaction=True)
def test_a_slow_peer_is_measured_by_fewer_ids(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report says by how many."""
    monkeypatch.setitem(SLOW, "peer:auto-increment", 140)
    out, _ = bench("bench", "--count=2800", "--against=auto-increment", "--threads=2")
    assert "auto-increment is slow: 140 ids." in out


def test_a_terminal_shows_the_round_in_its_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each overwrites the one before it; a file gets none of them."""

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", shown := Terminal())
    bench("bench", "--count=700")
    assert shown.getvalue() == "".join(f"round {turn} of 7\r" for turn in range(1, 8))
    monkeypatch.setattr("sys.stderr", shown := StringIO())
    bench("bench", "--count=700")
    assert shown.getvalue() == ""


def test_ids_that_do_not_rise_fail_the_command(bench: Bench) -> None:
    """The error names two of them and who got them."""
    with segments.override("faulty", Overlapping()), pytest.raises(CommandError) as caught:
        bench("segment:faulty", "--count=1000")
    words = r"segment:faulty: thread 0 of process \d+ got 1, then 1: ids did NOT RISE\."
    assert re.fullmatch(words, str(caught.value))
    assert caught.value.returncode == 1


def test_a_generator_may_have_the_name_of_a_peer(bench: Bench) -> None:
    """Both are measured, and told apart."""
    with segment() as ours, generators.override("count", ours):
        out, _ = bench("count", "--against=count", "--count=700")
    assert "\ncount: 1,401 ids of 1 thread(s) of 1 process(es) compared" in out
    assert re.findall(r"^(\S*count) .* ns", out, re.MULTILINE) == ["count", "peer:count"]


def test_a_peer_that_is_not_installed_is_skipped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, with its package; the others are measured."""
    monkeypatch.setitem(sys.modules, "uuid6", None)
    out, err = bench("bench", "--count=100", "--against=uuid6,uuid4")
    assert err == 'uuid6 is skipped: uuid6 is not installed (pip install "django-idgen[bench]").\n'
    assert "uuid4" in out


@pytest.mark.django_db(transaction=True)
def test_rows_without_uuid7_say_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.14 it takes a package."""
    monkeypatch.setitem(sys.modules, "uuid_utils", None)
    monkeypatch.delattr("uuid.uuid7", raising=False)
    out, err = bench("bench", "--insert=70")
    assert err.startswith("uuid7 is skipped: uuid-utils is not installed")
    assert "UUIDv4" in out
    assert "UUIDv7" not in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bench", "--count=0"], "--count must be a whole number of 1 to 1000000000, not 0"),
        (["bench", "--count=-1"], "--count must be a whole number of 1 to 1000000000, not -1"),
        (["bench", "--count=1000000000000"], "not 1000000000000"),
        (["bench", "--count=many"], "argument --count: invalid int value: 'many'"),
        (["bench", "--threads=0"], "--threads must be a whole number of 1 to 256, not 0"),
        (["bench", "--processes=0"], "--processes must be a whole number of 1 to 64, not 0"),
        (["bench", "--batch=100001"], "--batch must be a whole number of 1 to 100000"),
        (["bench", "--insert=6"], "--insert must be a whole number of 7 to 10000000, not 6"),
        (["bench", "--database=nosuch"], "argument --database: invalid choice: 'nosuch'"),
        (["nosuch"], "There is no generator 'nosuch'"),
        (["segment:"], "Segment tag '' can't be used: it must not be empty"),
        (["segment:" + "x" * 129], "it has 129 characters"),
        (["bench", "--against=uuid4,nosuch"], "There is no peer 'nosuch' to measure against."),
        (
            ["bench", "--count=9", "--json=/no/report.json"],
            "--json /no/report.json can't be written",
        ),
        (["bench", "--count=9", "--json=/"], "--json / can't be written"),
    ],
)
def test_bad_arguments_are_refused(bench: Bench, args: list[str], words: str) -> None:
    """The error names the argument."""
    with pytest.raises(CommandError) as caught:
        bench(*args)
    assert words in str(caught.value)
    # A script must not take it for a repeat. On the command line, argparse exits with 2 itself.
    assert caught.value.returncode == 2 or words.startswith("argument ")


@pytest.mark.parametrize("count", [True, "12", 1.5])
def test_bad_options_of_call_command_are_refused(bench: Bench, count: object) -> None:
    """Options that no parser saw are checked as well."""
    with pytest.raises(CommandError, match="--count must be a whole number"):
        bench("bench", count=count)


def test_a_failure_leaves_no_report(bench: Bench, tmp_path: Path) -> None:
    """No empty file is left behind."""
    report = tmp_path / "report.json"
    with segment() as closed, segments.override("closed", closed):
        closed.close()
        with pytest.raises(CommandError, match="is closed"):
            bench("segment:closed", f"--json={report}")
    assert not report.exists()


@pytest.mark.django_db(transaction=True)
def test_what_a_database_refuses_is_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own words, without a traceback; the tables are dropped."""

    def refuse(rows: Any, _count: int) -> None:
        rows.raw("SELECT nosuch").__iter__()

    monkeypatch.setattr("django_idgen.contrib.bench.inserts._create", refuse)
    with pytest.raises(CommandError, match="no such column: nosuch") as caught:
        bench("bench", "--insert=70")
    assert caught.value.returncode == 2
    tables = connections["default"].introspection.table_names()
    assert not [name for name in tables if name.startswith("idgen_bench")]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DatabaseError("gone"), "gone"),
        (InterfaceError("gone"), "gone"),
        (LookupError("no ids here"), "LookupError: no ids here"),
    ],
)
def test_whatever_ends_it_is_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    """A traceback would end with exit code 1, as if an id repeated."""

    def fail() -> None:
        raise error

    monkeypatch.setitem(PEERS, "count", ("nowhere", lambda: fail))
    with pytest.raises(CommandError, match=f"^{words}$") as caught:
        bench("bench", "--against=count", "--count=70")
    assert caught.value.returncode == 2


def test_a_database_that_can_not_be_measured_is_named(
    bench: Bench, server_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the database's words, with the way out."""
    monkeypatch.setitem(PEERS, "auto-increment", ("Django", lambda: auto_increment(server_alias)))
    words = "no_such_database.* Leave it out of --against"
    # Undone here: the fixture of the database ends before that of monkeypatch.
    with monkeypatch.context() as patch:
        patch.setitem(connections.settings[server_alias], "NAME", "no_such_database")
        with pytest.raises(CommandError, match=words) as caught:
            bench("bench", "--count=70", "--against=auto-increment")
    assert caught.value.returncode == 2


# --- tags ---------------------------------------------------------------------------------


def on(alias: str, **options: Any) -> override_settings:
    source = {"OPTIONS": {"database": alias, **options}}
    return override_settings(IDGEN={"SEGMENTS": {"SOURCE": source}})


def test_the_tag_it_used_is_removed_again(server_alias: str) -> None:
    """A tag that was there has lost no ids, even if it is paused; of another nothing is left.

    One that is named twice is measured once.
    """
    call_command("migrate", database=server_alias, verbosity=0)
    with on(server_alias, history=True):
        make_tag("orders", step=70, max_id=500)
        pause_tag("orders")
        names = ["segment:orders", "segment:new", "segment:orders"]
        out, _ = run(*names, "--count=700", "--threads=2")
        assert out.count("segment:orders: 1,402 ids") == 1
        assert "segment:new: 1,402 ids" in out
        (left,) = LeafAlloc.objects.using(server_alias).values_list("biz_tag", "max_id")
        assert left == ("orders", 500)
        assert not SegmentHistory.objects.using(server_alias).exists()
        segments.close()


def test_a_tag_is_measured_by_its_own_step(postgres: str) -> None:
    """The step is what a tag's speed depends on. A fetch under way does not make it again."""
    call_command("migrate", database=postgres, verbosity=0)
    with on(postgres):
        make_tag("orders", step=70)
        for _ in range(20):
            with scratch_tags(["segment:orders"]) as names:
                tag = names["segment:orders"].removeprefix("segment:")
                known = find_tag(tag)
                assert known is not None
                assert known.first.step == 70
                segments[tag].next_ids(69)  # which begins a fetch
            wait_for_threads(postgres)
            assert find_tag(tag) is None
        segments.close()


@pytest.mark.parametrize("options", [[], ["--insert=700"]])
def test_the_tag_is_removed_after_a_failure(
    postgres: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the benchmark is stopped in its middle, which no report is written of."""
    call_command("migrate", database=postgres, verbosity=0)
    before = connections[postgres].introspection.table_names()

    def stop(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("django_idgen.contrib.bench.inserts._bulk_create", stop)
    monkeypatch.setattr("django_idgen.contrib.bench.measure.time_calls", stop)
    with on(postgres):
        with pytest.raises(CommandError, match="Stopped") as caught:
            run("segment:orders", f"--database={postgres}", *options)
        assert caught.value.returncode == 130
        assert not LeafAlloc.objects.using(postgres).exists()
        segments.close()
    assert connections[postgres].introspection.table_names() == before


def test_a_pool_keeps_no_ids_of_a_tag_that_is_gone(postgres: str, redis: str) -> None:
    """What a process gives back at its end goes into the pool; nothing may come out of it."""
    call_command("migrate", database=postgres, verbosity=0)
    source = {"OPTIONS": {"database": postgres}}
    pooled = {"BACKEND": POOL, "OPTIONS": {"alias": redis, "source": source}}
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": pooled}}):
        pool = segments.allocator().source
        with scratch_tags(["segment:orders"]) as names:
            tag = names["segment:orders"].removeprefix("segment:")
            segments[tag].next_id()
            assert pool.refill(tag, 50) > 0
        assert pool.stocks([tag])[tag].ids == 0
        assert find_tag(tag) is None
        segments.close()


# --- several processes -------------------------------------------------------


TAGS = "SELECT count(*) FROM leaf_alloc"
FAULTY = """
from itertools import count
from django_idgen.core.generator import Generator

class Counting(Generator):
    def __init__(self, layout, registry, *, emit, step=1):
        self.ids = count(1_000, step)
    def next_id(self):
        return next(self.ids)
    def next_ids(self, n):
        return [next(self.ids) for _ in range(n)]

class Down(Counting):
    def next_id(self):
        raise LookupError("no ids here")

IDGEN = {"GENERATORS": {
    "default": {},
    "same": {"BACKEND": "bench_settings.Counting"},
    "falling": {"BACKEND": "bench_settings.Counting", "OPTIONS": {"step": -1}},
    "down": {"BACKEND": "bench_settings.Down"},
}}
"""


@pytest.fixture
def project(tmp_path: Path) -> dict[str, str]:
    """The environment of a fresh SQLite project, whose file is there: ids are given back to it."""
    database = tmp_path / "db.sqlite3"
    database.touch()
    (tmp_path / "bench_settings.py").write_text(
        FAULTY + "SECRET_KEY = 'bench'\nUSE_TZ = True\nINSTALLED_APPS = ['django_idgen']\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', "
        f"'NAME': {str(database)!r}}}}}\n"
    )
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "DJANGO_SETTINGS_MODULE": "bench_settings",
    }


def run_bench(project: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "django", "idgen_bench", *args]
    return subprocess.run(
        command, env=project, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.long
def test_processes_repeat_no_id(project: dict[str, str]) -> None:
    """Fresh processes on one database have worker ids of their own, and no id in common.

    They leave nothing behind.
    """
    done = run_bench(
        project, "default", "segment:bench", "--count=21000", "--threads=2", "--processes=3"
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("default", "segment:bench"):
        assert f"{name}: 42,006 ids of 2 thread(s) of 3 process(es) compared" in done.stdout
    assert worker_ids(project) == 3
    assert worker_ids(project, "WHERE token <> ''") == 0
    assert stored(project, "SELECT count(*) FROM sqlite_master WHERE name = 'leaf_alloc'") == 1
    assert stored(project, TAGS) == 0


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("same", 1, r"same: [\d,]+ of [\d,]+ ids REPEAT, such as 1000, given to thread 0 of .*"),
        pytest.param(
            "falling",
            1,
            r"falling: thread 0 of process \d+ got 1000, then 999: ids did NOT RISE\.",
            marks=pytest.mark.long,
        ),
        ("down", 2, r"Process \d+ could not go on: LookupError\('no ids here'\)"),
        pytest.param(
            "nosuch",
            2,
            r"There is no generator 'nosuch' in IDGEN\['GENERATORS'\]\. .*",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_is_wrong_in_a_process_ends_all_with_one_line(
    project: dict[str, str], target: str, code: int, words: str
) -> None:
    """The shell sees whether ids repeat, and a sentence."""
    done = run_bench(project, target, "--count=100", "--processes=2")
    assert done.returncode == code
    assert re.fullmatch(f"CommandError: {words}\n", done.stderr)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="/proc tells which the processes are")
def test_a_process_that_dies_is_noticed(project: dict[str, str]) -> None:
    """The others end, too."""
    with started(project, "--count=900000000", "--processes=2") as process:
        wait_for(lambda: worker_ids(project) == 2, process)
        sleep(1)  # a worker id that is just being lent can be lost
        os.kill(processes_of(process.pid)[0], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert re.fullmatch(r"CommandError: A process ended before it had finished\.\n", err)
    assert worker_ids(project, "WHERE token <> ''") == 1


def test_a_slow_source_is_a_figure_not_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A benchmark asks for more than a source can give; it waits, whatever the timeout is."""
    usual, seen = segments.allocator().timeout, set()

    def watching(*args: Any) -> list[list[Any]]:
        seen.add(segments.allocator().timeout)
        return take(*args)

    monkeypatch.setattr("django_idgen.contrib.bench.measure.take", watching)
    bench("segment:bench", "--count=100")
    assert min(seen) > 10
    assert segments.allocator().timeout == usual


# --- rows, and what is drawn --------------------------------------------------------------


def test_rows_of_each_kind_are_saved_and_the_tables_dropped(
    bench: Bench, server_alias: str, tmp_path: Path
) -> None:
    """Each kind has all rows, and an index to compare; nothing is left in the database."""
    call_command("migrate", database=server_alias, verbosity=0)
    before = connections[server_alias].introspection.table_names()
    report = tmp_path / "rows.json"
    out, _ = bench("bench", "segment:bench", "--insert=700", f"--database={server_alias}",
                   f"--json={report}")  # fmt: skip
    assert "1,050 rows of each in database" in out
    assert "single ones and batches of 100." in out
    assert "bytes a row" in out
    rows = json.loads(report.read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "SnowflakeField, bench", "SegmentIdField, segment:bench", "BigAutoField",
        "UUIDField, UUIDv4", "UUIDField, UUIDv7",
    ]  # fmt: skip
    assert {row["rows"] for row in rows} == {1050}
    assert all(row["index_bytes"] > 8 * 1050 for row in rows)
    assert connections[server_alias].introspection.table_names() == before
    assert not segments.fields.get("bench")


def test_ratios_of_rows_are_to_bigautofield() -> None:
    """Though it is not the first. A size that is not known is not shown."""

    def row(name: str, single: float, bulk: float) -> dict[str, Any]:
        return {
            "name": name, "rows": 1050, "batch": 100, "index_bytes": None,
            "ns_per_create": spread([single] * 7), "ns_per_bulk_row": spread([bulk] * 7),
        }  # fmt: skip

    rows = [row("SegmentIdField, segment:t", 200, 300), row("BigAutoField", 100, 100)]
    lines = list(lines_of_inserts(rows, database="default"))
    assert re.search(r"^SegmentIdField.* 2x$", lines[1])
    assert re.search(r"^SegmentIdField.* 3x$", lines[5])
    assert "as a multiple of that of BigAutoField; less is faster" in lines[-1]
    assert "bytes a row" not in "".join(lines)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--count=700", "--against=uuid4"], ["bench", "uuid4", "Ids a second"]),
        (["--insert=70"], ["BigAutoField", "bulk_create(): rows a second"]),
    ],
)
def test_a_picture_names_what_it_shows(
    bench: Bench, tmp_path: Path, options: list[str], words: list[str]
) -> None:
    """SVG or PNG, by the name's ending; SVG turns dark where pages are dark."""
    svg, png = tmp_path / "p.svg", tmp_path / "p.png"
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # texts, not their outlines
        bench("bench", *options, f"--plot={svg}")
    bench("bench", *options, f"--plot={png}")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "prefers-color-scheme: dark" in svg.read_text()
    shown = " ".join(filter(None, map(str.strip, ElementTree.parse(svg).getroot().itertext())))
    for word in [*words, "django_idgen", "others", "the middle half of the rounds"]:
        assert word in shown
    if "--insert=70" not in options:
        for word in ("100 ns", "1 µs", "p50: half of the calls take longer", "p99.9: 1 of 1000"):
            assert word in shown


@pytest.mark.parametrize(
    ("arg", "words"),
    [
        ("--plot={0}/p.bmp", r"must end in \.svg or \.png"),
        ("--plot={0}/nosuch/p.svg", r"--plot .*/nosuch/p\.svg can't be written: No such"),
        ("--json={0}", r"can't be written: Is a directory"),
        ("--json={0}/nosuch/p.json", r"--json .* can't be written"),
    ],
)
def test_a_report_that_could_not_be_written_is_refused_before_it_is_made(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arg: str, words: str
) -> None:
    """Nothing is measured, and the exit code is not that of a repeat."""
    unreached(monkeypatch)
    for more in ([], ["--insert=2000"]):
        with pytest.raises(CommandError, match=words) as caught:
            bench("bench", arg.format(tmp_path), *more)
        assert caught.value.returncode == 2


def test_what_draws_is_looked_for_before_anything_is_measured(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names what to install."""
    unreached(monkeypatch)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CommandError, match=r"django-idgen\[plot\]") as caught:
        bench("bench", f"--plot={tmp_path}/p.svg")
    assert caught.value.returncode == 2


def unreached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test fail if anything is measured."""

    def measure(*_args: Any, **_options: Any) -> None:
        pytest.fail("It measured.")

    for name in ("run", "insert_rows"):
        monkeypatch.setattr(f"django_idgen.management.commands.idgen_bench.{name}", measure)


@pytest.mark.parametrize(
    ("moment", "options"),
    [
        pytest.param("starting", ["--processes=2"], marks=pytest.mark.long),
        pytest.param("running", ["--processes=2"], marks=pytest.mark.long),
        (
            "running",
            [
                "default",
                "segment:bench",
                "--processes=2",
                "--threads=2",
                "--against=uuid4,auto-increment",
            ],
        ),
        pytest.param("running", ["default", "--insert=200000"], marks=pytest.mark.long),
    ],
)
def test_it_stops_at_once_and_in_order(
    project: dict[str, str], moment: str, options: list[str]
) -> None:
    """Ctrl-C ends all its processes with one line, and leaves no worker id held, tag or table.

    One Ctrl-C may come as several signals, as that of ``timeout`` does, up to the very end.
    """
    if moment == "starting" and not Path("/proc").is_dir():
        pytest.skip("This system has no /proc, which tells when the processes start.")
    with started(project, "--count=900000000", *options) as process:
        if moment == "starting":
            wait_for(lambda: processes_of(process.pid), process)
        else:
            wait_for(lambda: "segment:bench" not in options or stored(project, TAGS), process)
            wait_for(lambda: worker_ids(project), process)
            sleep(1)  # a worker id that is just being lent can be lost
        deadline = monotonic() + 0.9  # a Ctrl-C after a second counts again
        while process.poll() is None and monotonic() < deadline:
            os.killpg(process.pid, signal.SIGINT)
            sleep(0.002)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert err.strip() == "CommandError: Stopped. No report was written."
    assert moment == "starting" or worker_ids(project, "WHERE token <> ''") == 0
    assert stored(project, TAGS) == 0
    with closing(sqlite3.connect(database_of(project))) as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'idgen_bench%'")
        assert names.fetchall() == []


@pytest.mark.long
def test_a_parent_that_is_killed_leaves_no_process(project: dict[str, str]) -> None:
    """As by ``kill``, of which its processes learn nothing: they give back their worker ids."""
    with started(project, "--count=900000000", "--processes=2") as process:
        wait_for(lambda: worker_ids(project) == 2, process)
        sleep(1)
        process.terminate()
        # All have ended when the last one closes what they write to.
        _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert "Traceback" not in err
    assert worker_ids(project, "WHERE token <> ''") == 0


@contextmanager
def started(project: dict[str, str], *args: str) -> Iterator[subprocess.Popen[str]]:
    """The command, in a process group of its own, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "idgen_bench", *args],
        env=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        # A shell's background jobs ignore it, and so does what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Until it holds, as long as the process runs."""
    while not condition():
        assert process.poll() is None
        sleep(0.01)


def processes_of(group: int) -> list[int]:
    """The processes of a process group that multiprocessing has spawned."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"spawn_main" in file.read_bytes() and os.getpgid(int(file.parent.name)) == group:
                found.append(int(file.parent.name))
    return found


def database_of(project: dict[str, str]) -> Path:
    return Path(project["PYTHONPATH"].split(os.pathsep)[0]) / "db.sqlite3"


def worker_ids(project: dict[str, str], which: str = "") -> int:
    """How many worker ids the benchmark's processes had, or those ``which`` SQL names."""
    return stored(project, f"SELECT count(*) FROM django_idgen_workerlease {which}")


def stored(project: dict[str, str], sql: str) -> int:
    """What the file of marks answers; 0 without the file, or the table."""
    file = database_of(project).with_name("db.sqlite3-idgen")
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as db, suppress(sqlite3.OperationalError):
        (found,) = db.execute(sql).fetchone()
        return int(found)
    return 0
