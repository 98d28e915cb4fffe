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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
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
from django_idgen.contrib.bench.measure import Measured, Plan, in_threads, run_here, take
from django_idgen.contrib.bench.proof import Fault, Journal, prove
from django_idgen.contrib.bench.report import figures_of
from django_idgen.contrib.bench.targets import (
    PEERS,
    AutoIncrement,
    BenchFailed,
    PeerMissing,
    peer,
    target_of,
)
from django_idgen.core.errors import ConfigurationError
from django_idgen.core.generator import Generator
from tests.benchmarks.generators import segment, snowflake
from tests.benchmarks.timing import interleaved

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


# --- plan and measuring ------------------------------------------------------


@given(st.integers(1, 3_000_000), st.integers(1, 9), st.integers(1, 9))
def test_a_plan_takes_just_the_ids_asked_for(count: int, threads: int, processes: int) -> None:
    """--count is the number of ids of all threads and processes together."""
    if count < threads * processes:
        with pytest.raises(ConfigurationError, match="not enough"):
            Plan(("default",), count, threads, processes)
        return
    plan = Plan(("default",), count, threads, processes)
    parts = [plan.ids_of(part) for part in range(processes)]
    taken = [sum(chain.from_iterable(rounds)) for rounds in parts]
    assert sum(taken) == count
    assert max(taken) - min(taken) <= 1
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
    used = rows._idle
    _, taken = in_threads(partial(_insert, rows), threads)
    del rows
    gc.collect()
    ids = list(chain.from_iterable(taken))
    return ids, [each.connection is not None for each in used]


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
        targets = [target_of("segment", made), peer("count")]
        ours, theirs = figures_of(targets, [run_here(plan, targets, tmp_path)], tmp_path)
        assert made.stats().issued == ours.compared == 4_001
    assert ours.latency_calls == theirs.latency_calls == 2_000
    assert theirs.compared is None
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
    assert "mine: 2,001 ids of 1 thread(s) of 1 process(es) compared: all of a thread rose" in out
    assert err == ""


def test_the_command_measures_and_proves(bench: Bench, tmp_path: Path) -> None:
    """Both kinds of generators, a peer, threads and batches; the table says what was compared."""
    report = tmp_path / "report.json"
    out, err = bench(
        "bench", "segment:bench", "--count=5000", "--threads=3", "--batch=10",
        "--against=uuid4,count", f"--json={report}",
    )  # fmt: skip
    assert "bench: 10,001 ids of 3 thread(s) of 1 process(es) (worker ids " in out
    assert "segment:bench: 10,001 ids of 3 thread(s) of 1 process(es) compared: all of a" in out
    assert "bench: SnowflakeGenerator" in out
    assert "uuid4: 128 random bits (the standard library)" in out
    assert err == ""
    found = json.loads(report.read_text())
    assert [row["name"] for row in found["targets"]] == [
        "bench", "segment:bench", "uuid4", "count",
    ]  # fmt: skip
    assert found["environment"]["cpus"] == os.cpu_count()
    assert found["environment"]["databases"]["default"] == "sqlite"
    assert found["settings"]["count"] == 5000
    assert [row["compared"] for row in found["targets"]] == [10_001, 10_001, None, None]
    assert found["targets"][0]["workers"][0] in range(1024)
    for row in found["targets"]:
        spans = row["latency_ns"]
        assert 0 < spans["p50"] <= spans["p99"] <= spans["p99.9"]
        assert row["ids_per_second"] * row["ns_per_id"] == pytest.approx(1e9)


def test_ids_that_do_not_rise_fail_the_command(bench: Bench) -> None:
    """The error names two of them and who got them."""
    with segments.override("faulty", Overlapping()), pytest.raises(CommandError) as caught:
        bench("segment:faulty", "--count=1000")
    words = r"segment:faulty: thread 0 of process \d+ got 1, then 1: ids did NOT RISE\."
    assert re.fullmatch(words, str(caught.value))
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
def test_processes_have_worker_ids_of_their_own(project: dict[str, str], tmp_path: Path) -> None:
    """Fresh processes on one database: distinct worker ids, and no id in common."""
    report = tmp_path / "report.json"
    done = run_bench(
        project, "default", "segment:bench", "--count=20000", "--threads=2", "--processes=3",
        f"--json={report}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    stamped, counted = json.loads(report.read_text())["targets"]
    assert len(set(stamped["workers"])) == 3
    assert stamped["compared"] == counted["compared"] == 40_003
    assert worker_ids(project, "WHERE token <> ''") == 0


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
        os.kill(processes_of(process.pid)[0], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert re.fullmatch(
        r"CommandError: Process \d+ ended with exit code -9 before it had finished\.\n", err
    )
    assert worker_ids(project, "WHERE token <> ''") == 1


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


# --- rows, and what is drawn --------------------------------------------------------------


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


def test_a_picture(bench: Bench, tmp_path: Path) -> None:
    """SVG or PNG, by the name's ending; SVG turns dark where pages are dark."""
    svg, png = tmp_path / "p.svg", tmp_path / "p.png"
    bench("bench", "--count=200", "--against=uuid4", f"--plot={svg}")
    bench("bench", "--count=200", f"--plot={png}")
    assert "<svg" in svg.read_text()
    assert "prefers-color-scheme: dark" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")


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

    for name in ("run_here", "run_in_processes", "insert_rows"):
        monkeypatch.setattr(f"django_idgen.management.commands.idgen_bench.{name}", measure)


def test_a_size_that_the_database_does_not_tell_is_not_drawn() -> None:
    """Zero bytes a row would be a lie."""
    drawn = insert_picture([Inserted("BigAutoField", 2100, 9.0, 9.0, index_bytes=50_000)])
    assert len(drawn.charts) == 3
    drawn = insert_picture([Inserted("BigAutoField", 2100, 9.0, 9.0, index_bytes=None)])
    assert len(drawn.charts) == 2


def test_ratios_are_those_of_the_figures_beside_them(tmp_path: Path) -> None:
    """With medians of the rounds' ratios, 410 and 463 ns could stand beside 1.00x and 2.60x."""
    rounds = [[100, 410, 420], [463, 100, 1100]]
    latency = array("q", [1])
    found = figures_of(
        [peer("count"), peer("uuid4")],
        [[Measured(None, ids=[1] * 3, elapsed_ns=spans, latency_ns=latency) for spans in rounds]],
        tmp_path,
    )
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


def test_latency_in_full(bench: Bench) -> None:
    """More percentiles, and which part of the calls took longer than a limit."""
    out, _ = bench("bench", "--count=500", "--latency")
    assert re.search(r"p99\.99 +max$", out.splitlines()[1])
    assert re.search(r"^bench( +\d+\.\d{3}%){5}$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("moment", "options"),
    [
        pytest.param("starting", ["--processes=2"], marks=pytest.mark.long),
        pytest.param("running", ["--processes=2"], marks=pytest.mark.long),
        ("running", ["--processes=2", "--threads=2", "--against=uuid4,auto-increment"]),
        pytest.param("running", ["default", "--insert=200000"], marks=pytest.mark.long),
    ],
)
def test_it_stops_at_once_and_in_order(
    project: dict[str, str], moment: str, options: list[str]
) -> None:
    """Ctrl-C ends all its processes with one line, and leaves no worker id held and no table.

    One Ctrl-C may come as several signals, as that of ``timeout`` does.
    """
    if moment == "starting" and not Path("/proc").is_dir():
        pytest.skip("This system has no /proc, which tells when the processes start.")
    with started(project, "--count=900000000", *options) as process:
        if moment == "starting":
            wait_for(lambda: processes_of(process.pid), process)
        else:
            wait_for(lambda: worker_ids(project), process)
            sleep(1)  # a worker id that is just being lent can be lost
        for _signal in range(4):
            os.killpg(process.pid, signal.SIGINT)
            sleep(0.002)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert err.strip() == "CommandError: Stopped. No report was written."
    assert moment == "starting" or worker_ids(project, "WHERE token <> ''") == 0
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
    file = database_of(project).with_name("db.sqlite3-idgen")
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as db, suppress(sqlite3.OperationalError):
        (found,) = db.execute(f"SELECT count(*) FROM django_idgen_workerlease {which}").fetchone()
        return int(found)
    return 0
