"""The benchmark: its proof, its plan, and the command with good and bad arguments."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
import uuid
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from io import StringIO
from itertools import chain, count, islice, pairwise
from pathlib import Path
from time import sleep
from typing import Any, Protocol

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from hypothesis import given, settings
from hypothesis import strategies as st

from django_idgen import generators, segments
from django_idgen.contrib.bench.drawing import insert_picture
from django_idgen.contrib.bench.inserts import Inserted, insert_table
from django_idgen.contrib.bench.measure import (
    Measured,
    Plan,
    in_threads,
    run_here,
    run_in_processes,
    shares,
    take,
)
from django_idgen.contrib.bench.proof import Journal, NotAnId, Run, prove
from django_idgen.contrib.bench.report import ProgressBar, faults, figures_of
from django_idgen.contrib.bench.targets import (
    PEERS,
    AutoIncrement,
    BenchFailed,
    PeerMissing,
    Target,
    peer,
    target_of,
)
from django_idgen.core.errors import ConfigurationError
from django_idgen.core.generator import Generator
from django_idgen.management.commands.idgen_bench import set_up
from tests.benchmarks.generators import segment, snowflake
from tests.benchmarks.timing import interleaved

ROOT = Path(__file__).resolve().parents[2]
ids = st.integers(1, 40)


@pytest.fixture(scope="module", autouse=True)
def _small_heap() -> Iterator[None]:
    """Whatever other tests left in memory is not looked through before each round."""
    gc.freeze()
    yield
    gc.unfreeze()


# --- the proof ---------------------------------------------------------------


def written(folder: Path, *threads: list[int]) -> list[Journal]:
    """The journals of threads that took their ids a few at a time."""
    journals = [Journal(folder / str(number), f"thread {number}") for number in range(len(threads))]
    for journal, taken in zip(journals, threads, strict=True):
        for at in range(0, len(taken), 3):
            journal.add(taken[at : at + 3])
    return journals


def runs_of(journals: list[Journal]) -> list[Run]:
    return list(chain.from_iterable(journal.runs for journal in journals))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(ids, max_size=12), max_size=5), st.integers(1, 30))
def test_every_repeat_is_counted_however_little_fits_in_memory(
    tmp_path_factory: pytest.TempPathFactory, threads: list[list[int]], in_memory: int
) -> None:
    """Repeats within a thread and between threads are found, in rising and in falling ids."""
    proof = prove(runs_of(written(tmp_path_factory.mktemp("ids"), *threads)), in_memory=in_memory)
    seen = Counter(chain.from_iterable(threads))
    assert proof.compared == seen.total()
    assert proof.repeats == seen.total() - len(seen)
    assert (proof.example is None) == (proof.repeats == 0)
    if proof.example is not None:
        assert len(proof.holders) == seen[proof.example] > 1


@given(st.lists(ids, min_size=1, max_size=12))
def test_the_first_place_where_ids_do_not_rise_is_named(
    tmp_path_factory: pytest.TempPathFactory, taken: list[int]
) -> None:
    """Whether ids rose is seen within blocks and from one block to the next."""
    (journal,) = written(tmp_path_factory.mktemp("ids"), taken)
    falls = [(one, two) for one, two in pairwise(taken) if two <= one]
    found = journal.fall
    assert (None if found is None else (found.before, found.after)) == (falls[0] if falls else None)


def test_rising_ids_are_one_run(tmp_path: Path) -> None:
    """However many blocks there are, rising ids are merged as one, so few files are read."""
    (journal,) = written(tmp_path, list(range(1, 1000)))
    assert [(run.start, run.stop) for run in journal.runs] == [(0, 999)]


@pytest.mark.parametrize("value", [None, 0, -1, 2**63, "7", 1.5])
def test_what_is_no_id_is_named(tmp_path: Path, value: object) -> None:
    """A generator that returns 0, -1, None or worse is caught, not counted."""
    journal = Journal(tmp_path / "ids", "thread 0")
    with pytest.raises(NotAnId) as caught:
        journal.add([7, value])
    assert repr(value) in str(caught.value)


def test_the_proof_needs_no_more_memory_for_more_ids(tmp_path: Path) -> None:
    """Half a million ids of 8 threads are compared in what 20,000 take."""
    runs = []
    for thread in range(8):
        path = tmp_path / str(thread)
        with path.open("wb") as file:
            array("q", range(thread + 1, 500_001, 8)).tofile(file)
        runs.append(Run(str(path), 0, 62_500, f"thread {thread}"))
    tracemalloc.start()
    proof = prove(runs, in_memory=20_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (proof.compared, proof.repeats) == (500_000, 0)
    assert peak < 4_000_000


# --- plan and measuring ------------------------------------------------------


@given(st.integers(0, 10**9), st.integers(1, 300))
def test_shares_are_fair_and_complete(total: int, parts: int) -> None:
    """Nothing is lost in splitting, and nobody gets two more than another."""
    split = shares(total, parts)
    assert sum(split) == total
    assert max(split) - min(split) <= 1


@given(st.integers(1, 3_000_000), st.integers(1, 9), st.integers(1, 9))
def test_a_plan_takes_just_the_ids_asked_for(count: int, threads: int, processes: int) -> None:
    """--count is the number of ids of all threads and processes together."""
    if count < threads * processes:
        with pytest.raises(ConfigurationError, match="not enough"):
            Plan(("default",), count, threads, processes)
        return
    plan = Plan(("default",), count, threads, processes)
    parts = [plan.ids_of(part) for part in range(processes)]
    assert sum(chain.from_iterable(chain.from_iterable(parts))) == count
    assert {len(rounds) for rounds in parts} == {plan.rounds}


@pytest.mark.parametrize(("total", "batch"), [(10, 1), (10, 3), (10, 10), (3, 10)])
def test_batches_add_up(total: int, batch: int) -> None:
    """A last, smaller batch makes up the number of ids, in order."""
    with segment() as made:
        taken = take(target_of("segment", made), total, batch)
    assert list(chain.from_iterable(taken)) == list(range(1, total + 1))


def test_a_thread_that_fails_is_heard() -> None:
    """What a job raises in its thread is raised to the caller."""

    def job(number: int) -> int:
        if number == 2:
            raise LookupError("two")
        return number

    with pytest.raises(LookupError, match="two"):
        in_threads(job, 4)
    assert in_threads(job, 2)[1] == [0, 1]


def test_rounds_are_interleaved_and_turn() -> None:
    """Each job runs once a round, and none is always the first."""
    order: list[int] = []

    def job(number: int) -> float:
        order.append(number)
        return float(number)

    assert interleaved([partial(job, number) for number in range(3)], 3) == [
        [0.0] * 3,
        [1.0] * 3,
        [2.0] * 3,
    ]
    assert order == [0, 1, 2, 1, 2, 0, 2, 0, 1]


@pytest.mark.django_db
@pytest.mark.parametrize("name", list(PEERS))
def test_a_peer_gives_ids_wherever_its_package_is(name: str) -> None:
    """Each can be measured, one id at a time and in batches; a missing package is named."""
    modules = {"uuid4-rust": "uuid_utils", "snowflake-id": "snowflake", "ksuid": "cyksuid"}
    modules |= {"tsid": "tsidpy", "uuid7": "uuid_utils"}
    module = modules.get(name, name if name in {"uuid6", "ulid", "sonyflake"} else "uuid")
    if find_spec(module) is None and not (name == "uuid7" and hasattr(uuid, "uuid7")):
        with pytest.raises(PeerMissing, match=f"{PEERS[name].package} is not installed"):
            peer(name)
        return
    target = peer(name)
    taken = [target.source.next_id(), *target.next_ids(3)]
    assert len(set(taken)) == 4
    assert not target.ours


def inserted_by(alias: str, threads: int) -> tuple[list[int], list[bool]]:
    """Ids that a few threads insert at once, and whether each connection is open afterwards."""
    rows = AutoIncrement(alias)
    tables = rows._idle
    _, taken = in_threads(partial(_insert, rows), threads)
    del rows
    gc.collect()
    ids = list(chain.from_iterable(taken))
    return ids, [table.connection.connection is not None for table in tables]


def _insert(rows: AutoIncrement, _thread: int) -> list[int]:
    return [rows.next_id() for _ in range(50)]


def test_auto_increment_is_measured_on_servers(server_alias: str) -> None:
    """Threads at once have a table and a connection each, which are closed with the peer."""
    assert inserted_by(server_alias, 1) == (list(range(1, 51)), [False])
    ids, open_ones = inserted_by(server_alias, 4)
    assert len(ids) == 200
    assert max(Counter(ids).values()) <= len(open_ones) <= 4
    assert not any(open_ones)


def test_a_database_that_can_not_be_measured_is_named(server_alias: str) -> None:
    """In the database's words, with the way out."""
    connections.settings[server_alias]["NAME"] = "no_such_database"
    with pytest.raises(BenchFailed, match=r"no_such_database.* Leave it out of --against"):
        AutoIncrement(server_alias)


def test_every_id_of_every_thread_is_compared(tmp_path: Path) -> None:
    """Ids of the timed passes and of the latency passes all enter the proof, and hold."""
    plan = Plan(("segment", "peer"), count=2_000, threads=4)
    with segment() as made:
        opened = {"segment": target_of("segment", made), "peer": peer("count")}
        ours, theirs = figures_of([run_here(plan, opened.__getitem__, tmp_path)])
        assert made.stats().issued == ours.proof.compared == 4_001  # type: ignore[union-attr]
    assert ours.latency_calls == theirs.latency_calls == 2_000
    assert faults([ours, theirs]) == []
    assert theirs.proof is None
    assert ours.ratio == 1.0


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

    def stats(self) -> dict[str, Any]:
        return {}


class Bench(Protocol):
    def __call__(self, *args: str, **options: Any) -> tuple[str, str]: ...


def run(*args: str, **options: Any) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("idgen_bench", *args, stdout=out, stderr=err, **options)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The command, with a generator ``bench`` and a tag ``bench`` that need no database."""
    with (
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
    assert "mine: 2,001 ids of 1 thread(s) of 1 process(es) compared: none repeats." in out
    assert err == ""


def test_the_command_measures_and_proves(bench: Bench, tmp_path: Path) -> None:
    """Both kinds of generators, a peer, threads and batches; the table says what was compared."""
    report = tmp_path / "report.json"
    out, err = bench(
        "bench", "segment:bench", "--count=5000", "--threads=3", "--batch=10",
        "--against=uuid4,count", f"--json={report}",
    )  # fmt: skip
    assert "bench: 10,001 ids of 3 thread(s) of 1 process(es) (worker ids " in out
    assert "segment:bench: 10,001 ids of 3 thread(s) of 1 process(es) compared: none" in out
    assert err == ""
    found = json.loads(report.read_text())
    assert [row["name"] for row in found["targets"]] == [
        "bench", "segment:bench", "uuid4", "count",
    ]  # fmt: skip
    assert found["environment"]["cpus"] == os.cpu_count()
    assert found["environment"]["databases"]["default"] == "sqlite"
    assert found["settings"]["count"] == 5000
    assert [row["proof"] and row["proof"]["holds"] for row in found["targets"]] == [
        True, True, None, None,
    ]  # fmt: skip
    for row in found["targets"]:
        spans = row["latency_ns"]
        assert 0 < spans["p50"] <= spans["p99"] <= spans["p99.9"]
        assert row["ids_per_second"] * row["ns_per_id"] == pytest.approx(1e9)


def test_a_lease_token_is_not_in_the_report(bench: Bench, tmp_path: Path) -> None:
    """Whoever has the token could renew the lease, so no file gets it."""
    report = tmp_path / "report.json"
    bench("bench", "--count=10", f"--json={report}")
    row = json.loads(report.read_text())["targets"][0]
    assert row["processes"][0]["worker"] in range(1024)
    assert "token" not in report.read_text()


def test_repeats_fail_the_command(bench: Bench) -> None:
    """Ids that repeat end in an error that names one of them and who got it."""
    with segments.override("faulty", Overlapping()), pytest.raises(CommandError) as caught:
        bench("segment:faulty", "--count=1000")
    message = str(caught.value)
    assert "REPEAT, such as 1, given to thread 0 of process" in message
    assert "did NOT RISE" in message
    assert caught.value.returncode == 1


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
    out, err = bench("bench", "--insert=1000")
    assert err.startswith("uuid7 is skipped: uuid-utils is not installed")
    assert "UUIDv4" in out
    assert "UUIDv7" not in out


def test_the_bar_is_drawn_on_a_terminal_only() -> None:
    """It fills up to 100 %; without a terminal nothing is written."""
    drawn: list[str] = []
    bar = ProgressBar(2, drawn.append)
    bar.step()
    bar.step()
    assert [text.strip("\r") for text in drawn] == [
        f"[{'#' * 20}{'.' * 20}]  50 %",
        f"[{'#' * 40}] 100 %",
    ]
    ProgressBar(2, None).step()


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
        (["bench", "--count=5", "--threads=6"], "--count 5 is not enough for 6 threads"),
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


# --- several processes -------------------------------------------------------


def open_nothing(name: str) -> Target:
    raise LookupError(f"no {name} here")


def open_and_die(name: str) -> Target:
    os._exit(3)


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    """The others are stopped, and the reason is told."""
    plan = Plan(("thing",), count=100, processes=2)
    with pytest.raises(BenchFailed, match=r"could not go on: LookupError\('no thing here'\)"):
        run_in_processes(plan, open_nothing, tmp_path, set_up=int)


def test_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    """Nobody waits for one that was killed."""
    plan = Plan(("thing",), count=100, processes=2)
    with pytest.raises(BenchFailed, match="ended with exit code 3 before it had finished"):
        run_in_processes(plan, open_and_die, tmp_path, set_up=int)


@pytest.fixture
def project(tmp_path: Path) -> dict[str, str]:
    """The environment of a fresh SQLite project."""
    (tmp_path / "bench_settings.py").write_text(
        "SECRET_KEY = 'bench'\nUSE_TZ = True\nINSTALLED_APPS = ['django_idgen']\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', "
        f"'NAME': {str(tmp_path / 'db.sqlite3')!r}}}}}\n"
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


def test_processes_have_worker_ids_of_their_own(project: dict[str, str], tmp_path: Path) -> None:
    """Fresh processes on one database: distinct worker ids, and no id in common."""
    report = tmp_path / "report.json"
    done = run_bench(
        project, "default", "segment:bench", "--count=20000", "--threads=2", "--processes=3",
        f"--json={report}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    stamped, counted = json.loads(report.read_text())["targets"]
    assert len({process["pid"] for process in stamped["processes"]}) == 3
    assert len({process["worker"] for process in stamped["processes"]}) == 3
    for row in (stamped, counted):
        assert row["proof"]["compared"] == 40_003
        assert row["proof"]["holds"]


def test_an_error_is_one_line_without_a_traceback(project: dict[str, str]) -> None:
    """The shell sees exit code 2 and a sentence."""
    done = run_bench(project, "nosuch", "--processes=2")
    assert done.returncode == 2
    assert done.stderr.startswith("CommandError: There is no generator 'nosuch'")
    assert "Traceback" not in done.stderr


class Watching:
    """A generator that notes how long its callers would wait for a segment."""

    def __init__(self) -> None:
        self.timeouts: set[float] = set()
        self.ids = count(1)

    def next_id(self) -> int:
        self.timeouts.add(segments.allocator().timeout)
        return next(self.ids)

    def next_ids(self, n: int) -> list[int]:
        return [self.next_id() for _ in range(n)]

    def stats(self) -> dict[str, Any]:
        return {}


def test_a_slow_source_is_a_figure_not_a_failure(bench: Bench) -> None:
    """A benchmark asks for more than a source can give; it waits, whatever the timeout is."""
    usual = segments.allocator().timeout
    watching: Any = Watching()
    with segments.override("bench", watching):
        bench("segment:bench", "--count=100")
    assert min(watching.timeouts) > 10
    assert segments.allocator().timeout == usual
    set_up()  # as each process of several does
    try:
        assert segments.allocator().timeout > 10
    finally:
        segments.allocator().timeout = usual


# --- rows, a service, and what is drawn --------------------------------------------------


def test_rows_of_each_kind_are_saved_and_the_tables_dropped(
    bench: Bench, server_alias: str, tmp_path: Path
) -> None:
    """Each kind has all rows, and an index to compare; nothing is left in the database."""
    call_command("migrate", database=server_alias, verbosity=0)
    before = connections[server_alias].introspection.table_names()
    report = tmp_path / "rows.json"
    out, _ = bench("bench", "segment:bench", "--insert=2000", f"--database={server_alias}",
                   f"--json={report}")  # fmt: skip
    assert "2,100 rows of each in database" in out
    rows = json.loads(report.read_text())["inserts"]
    assert [row["name"] for row in rows] == [
        "SnowflakeField of 'bench'", "SegmentIdField of 'bench'", "BigAutoField",
        "UUIDField, UUIDv4", "UUIDField, UUIDv7",
    ]  # fmt: skip
    assert {row["rows"] for row in rows} == {2100}
    assert all(row["index_bytes"] > 8 * 2100 for row in rows)
    assert connections[server_alias].introspection.table_names() == before
    assert not segments.fields.get("bench")


def test_tables_are_dropped_after_a_failure(
    bench: Bench, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the benchmark is stopped in its middle, which no report is written of."""
    call_command("migrate", database=postgres, verbosity=0)
    before = connections[postgres].introspection.table_names()

    def stop(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("django_idgen.contrib.bench.inserts._bulk_create", stop)
    with pytest.raises(CommandError, match="Stopped") as caught:
        bench("bench", "--insert=2000", f"--database={postgres}")
    assert caught.value.returncode == 130
    assert connections[postgres].introspection.table_names() == before


@pytest.mark.django_db(transaction=True)
def test_a_service_is_measured_by_requests_and_by_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both ways are one target each, and no id of either repeats."""
    # Not above: fresh processes import this module before they set Django up.
    from django_idgen.ops.tags.edits import make_tag
    from tests.remote.service import SECRET, service

    monkeypatch.setenv("IDGEN_TOKEN", SECRET)
    memory = {"BACKEND": "django_idgen.leases.memory.MemoryLeases"}
    with service({"GENERATORS": {"default": {"LEASES": memory}}}) as url:
        with pytest.raises(CommandError, match=r"tags/nosuch/ids: 404 .*nosuch"):
            run("segment:nosuch", f"--http={url}")
        make_tag("bench", step=100)
        out, _ = run("segment:bench", f"--http={url}", "--count=60", "--threads=2")
    for name in ("request:segment:bench", "client:segment:bench"):
        assert re.search(rf"^{name}: \d+ ids of 2 thread.*none repeats\.$", out, re.MULTILINE)
    assert "request:segment:bench: the ids of each thread rose" not in out


def test_a_service_that_does_not_answer_is_one_line(bench: Bench) -> None:
    """The error names what was asked for."""
    with pytest.raises(CommandError, match=r"127\.0\.0\.1|IDGEN_TOKEN"):
        bench("bench", "--http=http://127.0.0.1:1/idgen/", "--count=10")


def test_a_picture_and_a_page(bench: Bench, tmp_path: Path) -> None:
    """SVG and PNG by the name's ending; the page needs no other file and no host."""
    svg, png, page = tmp_path / "p.svg", tmp_path / "p.png", tmp_path / "p.html"
    bench("bench", "--count=200", "--against=uuid4", f"--plot={svg}", f"--html={page}")
    bench("bench", "--count=200", f"--plot={png}")
    assert "<svg" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "prefers-color-scheme: dark" in svg.read_text()
    text = page.read_text()
    assert text.count("<svg") == 2  # they stand one below the other on a phone
    assert "prefers-color-scheme: dark" in text
    assert re.search(r"<p>uuid4: 128 random bits .*</p>", text)
    assert re.search(r'<pre class="table">target .*ns an id', text)
    assert "<dt>Databases</dt><dd>default (sqlite)" in text
    assert "made_at" not in text
    assert not re.search(r"""(src|href)=["']https?:""", text.replace("http://www.w3.org", ""))


@pytest.mark.parametrize(
    ("arg", "words"),
    [
        ("--plot={0}/p.bmp", r"must end in \.svg or \.png"),
        ("--plot={0}/nosuch/p.svg", r"--plot .*/nosuch/p\.svg can't be written: No such"),
        ("--html={0}/nosuch/p.html", r"--html .*/nosuch/p\.html can't be written: No such"),
        ("--html={0}", r"can't be written: Is a directory"),
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


@pytest.mark.parametrize("arg", ["--plot={0}/p.svg", "--html={0}/p.html"])
def test_what_draws_is_looked_for_before_anything_is_measured(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arg: str
) -> None:
    """The error names what to install."""
    unreached(monkeypatch)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CommandError, match=r"django-idgen\[plot\]") as caught:
        bench("bench", arg.format(tmp_path))
    assert caught.value.returncode == 2


def unreached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test fail if anything is measured."""

    def measure(*_args: Any, **_options: Any) -> None:
        pytest.fail("It measured.")

    for name in ("run_here", "run_in_processes", "insert_rows"):
        monkeypatch.setattr(f"django_idgen.management.commands.idgen_bench.{name}", measure)


def test_a_size_that_the_database_does_not_tell_is_not_drawn() -> None:
    """Zero bytes a row would be a lie."""
    drawn = insert_picture([Inserted("BigAutoField", 2100, 9.0, 9.0, index_bytes=50_000)])
    assert len(drawn.charts) == 3
    drawn = insert_picture([Inserted("BigAutoField", 2100, 9.0, 9.0, index_bytes=None)])
    assert len(drawn.charts) == 2


def test_ratios_are_those_of_the_figures_beside_them() -> None:
    """With medians of the rounds' ratios, 410 and 463 ns could stand beside 1.00x and 2.60x."""
    rounds = {"first": [100, 410, 420], "second": [463, 100, 1100]}
    found = figures_of(
        [
            [
                Measured(name, "", False, False, 1, ids=[1] * 3, elapsed_ns=spans,
                         latency_ns=array("q", [1]))
                for name, spans in rounds.items()
            ]
        ]
    )  # fmt: skip
    assert [row.ns_per_id for row in found] == [410, 463]
    assert [row.ratio for row in found] == [1, 463 / 410]


def test_ratios_mean_the_same_in_both_tables(bench: Bench) -> None:
    """The head says of what they are, and that less is faster."""
    out, _ = bench("bench", "--count=100", "--against=uuid4")
    assert out.startswith("ratio: the time per id, as a multiple of that of bench; less is faster.")
    found = [
        Inserted("SegmentIdField", 2100, 200.0, 300.0, None),
        Inserted("BigAutoField", 2100, 100.0, 100.0, None),
    ]
    head, _columns, row, *_rest = insert_table(found, database="default")
    assert head == "ratio: the time per row, as a multiple of that of BigAutoField; less is faster."
    assert re.search(r"^SegmentIdField .* 2\.00x .* 3\.00x", row)


def test_a_report_is_compared_with_an_earlier_one(bench: Bench, tmp_path: Path) -> None:
    """Each target that both have gets the ratio; any other file is refused by its name."""
    report = tmp_path / "report.json"
    bench("bench", "--count=500", f"--json={report}")
    out, _ = bench("bench", "segment:bench", "--count=500", f"--compare={report}")
    assert out.splitlines()[1].endswith("earlier")
    assert re.search(r"^bench .*x$", out, re.MULTILINE)
    for text in ("[]", "{}", "no JSON"):
        report.write_text(text)
        with pytest.raises(CommandError, match="is not a report of idgen_bench --json"):
            bench("bench", "--count=500", f"--compare={report}")


def test_latency_in_full(bench: Bench) -> None:
    """More percentiles, and which part of the calls took longer than a limit."""
    out, _ = bench("bench", "--count=500", "--latency")
    assert re.search(r"p99\.99 +max$", out.splitlines()[1])
    assert re.search(r"^bench( +\d+\.\d{3}%){5}$", out, re.MULTILINE)


def test_the_output_says_what_each_target_is(bench: Bench) -> None:
    """Ours by its class, a peer with the package that it comes from."""
    out, _ = bench("bench", "--count=100", "--against=uuid4")
    assert "bench: SnowflakeGenerator" in out
    assert "uuid4: 128 random bits (the standard library)" in out


@pytest.mark.parametrize(
    ("moment", "options"),
    [
        ("starting", ["--processes=2"]),
        ("running", ["--processes=2"]),
        ("running", ["--processes=2", "--threads=2", "--against=uuid4,auto-increment"]),
        ("running", ["default", "--insert=200000"]),
    ],
)
def test_it_stops_at_once_and_in_order(
    project: dict[str, str], moment: str, options: list[str]
) -> None:
    """Ctrl-C ends all its processes with one line, and leaves no worker id held and no table."""
    if moment == "starting" and not Path("/proc").is_dir():
        pytest.skip("This system has no /proc, which tells when the processes start.")
    file = Path(project["PYTHONPATH"].split(os.pathsep)[0]) / "db.sqlite3"
    file.touch()  # worker ids of a database that is gone are not given back
    command = [sys.executable, "-m", "django", "idgen_bench", "--count=900000000", *options]
    process = subprocess.Popen(
        command, env=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        # A shell's background jobs ignore it, and so does what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        while not (worker_ids(project) if moment == "running" else has_workers(process.pid)):
            assert process.poll() is None
            sleep(0.01)
        if moment == "running":
            sleep(1)  # a worker id that is just being lent can be lost
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, out) == (130, ""), err
    assert err.strip() == "CommandError: Stopped. No report was written."
    assert moment == "starting" or worker_ids(project, "WHERE token <> ''") == 0
    with closing(sqlite3.connect(file)) as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'idgen_bench%'")
        assert names.fetchall() == []


def test_a_parent_that_is_killed_leaves_no_process(project: dict[str, str]) -> None:
    """As by ``kill``, of which its processes learn nothing: they give back their worker ids."""
    Path(project["PYTHONPATH"].split(os.pathsep)[0], "db.sqlite3").touch()
    command = [sys.executable, "-m", "django", "idgen_bench", "--count=900000000", "--processes=2"]
    process = subprocess.Popen(
        command, env=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        while worker_ids(project) < 2:
            assert process.poll() is None
            sleep(0.1)
        sleep(1)
        process.terminate()
        # All have ended when the last one closes what they write to.
        _, err = process.communicate(timeout=30)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGTERM
    assert "Traceback" not in err
    assert worker_ids(project, "WHERE token <> ''") == 0


def test_the_two_signals_of_one_ctrl_c_are_one(project: dict[str, str]) -> None:
    """As those of ``timeout``, which sends its signal to the process and to its group."""
    command = [sys.executable, "-m", "django", "idgen_bench", "--count=900000000"]
    process = subprocess.Popen(
        command, env=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not worker_ids(project):
        assert process.poll() is None
        sleep(0.1)
    sleep(1)
    for _signal in range(4):
        os.killpg(process.pid, signal.SIGINT)
        sleep(0.002)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert err.strip() == "CommandError: Stopped. No report was written."


def has_workers(group: int) -> bool:
    """Whether a process of the process group was spawned by multiprocessing."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"spawn_main" in file.read_bytes() and os.getpgid(int(file.parent.name)) == group:
                return True
    return False


def worker_ids(project: dict[str, str], which: str = "") -> int:
    """How many worker ids the benchmark's processes had, or those ``which`` SQL names."""
    file = Path(project["PYTHONPATH"].split(os.pathsep)[0]) / "db.sqlite3-idgen"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as db, suppress(sqlite3.OperationalError):
        (found,) = db.execute(f"SELECT count(*) FROM django_idgen_workerlease {which}").fetchone()
        return int(found)
    return 0
