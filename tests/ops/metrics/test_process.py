"""Metrics of processes: what is counted, that looking costs nothing, and who may look."""

from __future__ import annotations

import http.client
import signal
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from django_idgen import next_id, segments
from django_idgen.core.generator import Generator
from django_idgen.ops.metrics import exporter
from django_idgen.ops.metrics.exporter import Exporter
from django_idgen.process import maps
from django_idgen.settings.config import MetricsSettings, SettingsError, read_settings
from tests.faults.processes import Site, Taken, Web, eventually, serving
from tests.faults.test_web_servers import gunicorn
from tests.own_servers import pointing_at
from tests.places import idgen_on
from tests.private_postgres import PostgresServer, postgres_farm
from tests.redis_servers import RedisServer, cache_alias, redis_farm
from tests.rest.tags.people import Person

from .conftest import PREAMBLE, Script
from .samples import Scraped, scrape


def test_a_process_tells_what_it_gave_out_and_holds(script: Script) -> None:
    """Ids, refills, waits, the lease; and in the default registry the same as in our view."""
    script("""
ids = [next_id() for _ in range(100)]
while not generators["default"].stats().waits:  # a slow machine is never ahead of its clock
    ids += generators["default"].next_ids(10_000)
segments["orders"].next_ids(300)
segments["inv"].next_id()
for tag in ("orders", "inv"):
    segments[tag].preload(10)  # or one may come in while it is counted
found = scraped()
assert found.one("ids_issued_total", generator="default") == len(ids)
assert found.one("generator_waits_total") > 0
assert found.one("generator_wait_seconds_total") > 0
assert found.one("segment_ids_issued_total", tag="orders") == 300
assert found.one("segment_ids_issued_total", tag="inv") == 1
assert found.one("segment_loads_total", tag="orders") >= 1
assert found.one("segment_waits_total", tag="inv") == 1
assert found.one("segment_wait_seconds_count") == 2
assert found.one("segment_load_seconds_count") == found.sum("segment_loads_total")
left = segments["orders"].stats().remaining
assert found.one("segment_buffer_ids", tag="orders") == left
assert found.one("lease_acquires_total", namespace="default") == 1
assert 170 < found.one("lease_seconds_left") <= 180
assert found.one("worker_id") == generators["default"].layout.unpack(ids[0]).worker
assert abs(found.one("clock_offset_seconds")) < 5
assert found.one("tag_max_id", tag="orders") == segments["orders"].floor
assert found.one("tags") == 2
assert found.one("worker_ids", state="held") == 1
assert found.sum("up") == len(found.samples("up")) == 3

from prometheus_client import REGISTRY, generate_latest
names = Scraped(generate_latest(REGISTRY).decode()).names()
assert found.names() - {"django_idgen_segment_buffer_seconds"} <= names
""")


def test_looking_has_a_lease_renewed_again_after_a_fork(script: Script) -> None:
    """A fork ends the renewing thread; an alert on the window of an idle process would follow."""
    script("""
import os, threading
next_id()
if os.fork() == 0:
    os._exit(0)
os.wait()
assert "idgen-default" not in [thread.name for thread in threading.enumerate()]
scraped()
assert "idgen-default" in [thread.name for thread in threading.enumerate()]
""")


def test_looking_makes_no_generator_and_takes_no_id(script: Script) -> None:
    """A process that gave out nothing tells so, and holds nothing afterwards."""
    script("""
for _ in range(3):
    found = scraped()
assert not found.samples("ids_issued_total")
assert not found.samples("lease_held")
assert maps.generators.made() == {}
assert maps.segments.made() == {}
assert found.one("worker_ids", state="held") == 0
next_id()
assert scraped().one("ids_issued_total") == scraped().one("ids_issued_total") == 1
""")


def test_counts_survive_the_end_of_generators(script: Script) -> None:
    """Settings that change, a tag that is dropped: counters go on, and never down."""
    script("""
next_id()
segments["orders"].next_ids(5)
maps.reset()
found = scraped()
assert found.one("ids_issued_total") == 1
assert found.one("segment_ids_issued_total") == 5
assert not found.samples("lease_seconds_left")
assert found.one("segment_buffer_ids", tag="orders") == 0
assert found.one("segment_ids_given_back_total", tag="orders") > 0
next_id()
segments["orders"].next_ids(2)
found = scraped()
assert found.one("ids_issued_total") == 2
assert found.one("segment_ids_issued_total") == 7

import time
from django.conf import settings
settings.IDGEN["SEGMENTS"] = {"OPTIONS": {"idle_after": 0.01}}
maps.reset()
segments["brief"].next_ids(3)
allocator = maps.segments.allocator()
while "brief" in maps.segments.made():
    time.sleep(0.02)
    allocator.sweep()
assert scraped().one("segment_ids_issued_total", tag="brief") == 3
""")


@pytest.mark.parametrize("kind", ["single", "files"])
def test_a_child_begins_at_nothing(
    kind: str, script: Script, request: pytest.FixtureRequest
) -> None:
    """After a fork the child has its own counts, and the parent keeps its own."""
    if kind == "files":
        request.getfixturevalue("files")
    script("""
import os
next_id()
segments["orders"].next_ids(5)
scraped()
child = os.fork()
if child == 0:
    code = 1
    try:
        found = scraped()
        shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        assert found.sum("ids_issued_total") == (1 if shared else 0), found.text
        next_id()
        segments["orders"].next_ids(2)
        found = scraped()
        assert found.sum("ids_issued_total") == (2 if shared else 1)
        assert found.sum("segment_ids_issued_total") == (7 if shared else 2)
        assert all(left > 0 for _, left in found.samples("lease_seconds_left"))
        maps.reset()
        code = 0
    finally:
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
found = scraped()
assert found.sum("ids_issued_total") == (2 if "PROMETHEUS_MULTIPROC_DIR" in os.environ else 1)
assert len(found.samples("lease_held")) == 1
""")


def test_many_tags_are_few_series(script: Script, metrics_site: Site) -> None:
    """The first ones go by their names, the rest is added up; nothing is lost."""
    metrics_site.set_idgen({"METRICS": {"tags": 3}})
    script("""
for number in range(20):
    segments[f"t{number}"].next_ids(number + 1)
found = scraped()
tags = {labels["tag"] for labels, _ in found.samples("segment_ids_issued_total")}
assert tags == {"t0", "t1", "t2", "other"}
assert found.sum("segment_ids_issued_total") == 210
assert found.one("segment_ids_issued_total", tag="other") == 210 - 1 - 2 - 3
held = sum(made.stats().remaining for made in maps.segments.made().values())
assert found.sum("segment_buffer_ids") == held
assert len(found.samples("tag_max_id")) == 3
assert found.one("tags") == 20
""")


def test_what_goes_wrong_is_counted_by_its_kind(script: Script) -> None:
    """By signal and class of exception; the usual ones are there as 0 from the start."""
    script("""
found = scraped()
assert found.one("errors_total", event="lease_lost") == 0
from django_idgen import signals
from django_idgen.core.errors import LeaseLost, SegmentUnavailable
signals.emit("lease_lost", lease=None, error=LeaseLost("gone"))
for _ in range(3):
    signals.emit("segment_load_failed", tag="a", error=SegmentUnavailable("away"))
    signals.emit("segment_load_failed", tag="b", error=ValueError("odd"))
signals.emit("clock_skewed", offset_us=1, source="wall")
found = scraped()
assert found.one("errors_total", event="lease_lost", error="LeaseLost") == 1
assert found.one("errors_total", event="segment_load_failed", error="SegmentUnavailable") == 3
assert found.one("errors_total", event="segment_load_failed", error="ValueError") == 3
assert found.one("errors_total", event="clock_skewed", error="") == 1
""")


def test_giving_out_ids_is_not_touched(script: Script) -> None:
    """With metrics on, the very same functions run, and no signal's receiver is slow."""
    script("""
from django_idgen.core.segment_generator import SegmentGenerator
from django_idgen.core.snowflake import SnowflakeGenerator
generator, tag = generators["default"], segments["orders"]
generator.next_id(), tag.next_id()
assert start()
assert type(generator).next_id is SnowflakeGenerator.next_id
assert type(tag) is SegmentGenerator
import sys
called = set()
def trace(frame, event, arg):
    if event == "call":
        called.add(frame.f_code.co_filename.rpartition("/")[2])
tag.next_ids(3)
sys.setprofile(trace)
for _ in range(50):
    tag.next_id()
sys.setprofile(None)
assert not called - {"segment_generator.py"}, called
""")


class Uneven(Generator):
    """A project's own, whose counts are read at bad moments."""

    counts = iter((5, 9, 8, 9, 12))

    def next_id(self) -> int:
        return 1

    def next_ids(self, count: int, /) -> list[int]:
        return [1] * count

    def stats(self) -> object:
        return SimpleNamespace(issued=next(self.counts))


def test_what_was_told_is_never_taken_back(switched: dict[str, Any]) -> None:
    """A reading that is a little short counts for nothing, and the next one for the rest."""
    switched["shared"] = False
    with maps.generators.override("odd", Uneven()):
        told = [scraped().one("ids_issued_total", generator="odd") for _ in range(5)]
    assert told == [5, 9, 9, 9, 12]


# --- settings, and where the library is missing --------------------------------------------


REFUSED: list[tuple[object, str]] = [
    ({"tokn": 1}, "unknown key 'tokn'"),
    ({"token": "short"}, "16 or more"),
    ({"token": "with a space in it, see"}, "16 or more"),
    ({"tags": -1}, "0 to 100000"),
    ({"tags": True}, "0 to 100000"),
    ({"every": 0}, "0.1 to 1000000 seconds"),
    ({"within": "3"}, "seconds"),
    ({"shared": 1}, "True or False"),
    ([], "must be a dictionary"),
]


def test_settings_that_cannot_work_are_refused_by_name() -> None:
    """The message names the key; it never shows the token."""
    for entry, words in REFUSED:
        with (
            override_settings(IDGEN={"METRICS": entry}),
            pytest.raises(SettingsError, match=words) as caught,
        ):
            read_settings()
        assert "IDGEN['METRICS']" in str(caught.value)
        assert "with a space" not in str(caught.value)
        assert "short" not in str(caught.value)


def test_without_the_library_all_else_works(metrics_site: Site) -> None:
    """Ids flow, the check says what to install, and so does whoever uses the metrics."""
    code = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "prometheus_client" else found(name)
import django
django.setup()
from django_idgen import next_id
import django_idgen.ops.metrics
assert next_id() > 0
try:
    django_idgen.ops.metrics.view
except ImportError as error:
    assert "pip install django-idgen[prometheus]" in str(error)
else:
    raise SystemExit("no error")
from django_idgen.ops.metrics import check_metrics
print([(each.id, each.hint) for each in check_metrics()])
"""
    with metrics_site.python(code, setup=False) as running:
        assert running.finish() == 0, running.output
        assert "django_idgen.E008" in running.output
        assert "pip install django-idgen[prometheus]" in running.output


def test_without_the_directory_all_else_works(metrics_site: Site, tmp_path: Path) -> None:
    """A command of another user, say, which may not write there: ids flow, and the log says why."""
    metrics_site.environment["PROMETHEUS_MULTIPROC_DIR"] = str(tmp_path / "nowhere")
    with metrics_site.python("from django_idgen import next_id; assert next_id()") as running:
        assert running.finish() == 0, running.output
        assert "PROMETHEUS_MULTIPROC_DIR must be writable" in running.output


# --- the view: closed to others, and quick whatever hangs -----------------------------


TOKEN = "a-token-of-the-tests"


@pytest.fixture
def switched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Metrics that nothing outside of the test hears of; the settings can be changed."""
    options: dict[str, Any] = {"token": TOKEN, "within": 0.5, "max_age": 0.0}
    made: list[Exporter] = []

    def start() -> Exporter:
        if not made:
            made.append(Exporter(MetricsSettings(**options)))
        return made[0]

    monkeypatch.setattr(exporter, "start", start)
    return options


def get(user: Any = None, **headers: str) -> HttpResponse:
    request = RequestFactory().get("/metrics", headers=headers)
    request.user = user or AnonymousUser()
    return exporter.view(request)


def scraped() -> Scraped:
    answer = get(authorization=f"Bearer {TOKEN}")
    assert answer.status_code == 200
    return Scraped(answer.content.decode())


# --- who may look --------------------------------------------------------------------


@pytest.mark.django_db
def test_it_is_closed_but_for_the_token_and_for_staff(switched: dict[str, Any]) -> None:
    """Others are told what to do, and learn nothing else. It is for reading, and never cached."""
    right = {"authorization": f"Bearer {TOKEN}"}
    assert get(**right).status_code == 200
    assert "no-store" in get(**right)["Cache-Control"]
    assert exporter.view(RequestFactory().post("/metrics", headers=right)).status_code == 405
    assert get(authorization=f"bearer   {TOKEN} ").status_code == 200
    assert get(Person(staff=True)).status_code == 200
    for wrong in (f"Bearer {TOKEN}x", "Bearer ", "Bearer é", f"Basic {TOKEN}", TOKEN, ""):
        answer = get(authorization=wrong)
        assert answer.status_code == 401, wrong
        assert "Bearer" in answer["WWW-Authenticate"]
        assert b"django_idgen_" not in answer.content
    assert get(Person()).status_code == 403


@pytest.mark.django_db
def test_without_a_token_it_is_for_staff_alone(switched: dict[str, Any]) -> None:
    """An empty one, or the word None, opens nothing."""
    switched["token"] = None
    for sent in ("Bearer", "Bearer ", "Bearer None"):
        assert get(authorization=sent).status_code == 401
    assert get(Person(staff=True)).status_code == 200


@pytest.mark.django_db
def test_it_speaks_the_format_that_is_asked_for(switched: dict[str, Any]) -> None:
    """Prometheus' text, or OpenMetrics. Whatever stands for a version, no word of it comes back."""

    def asked(accept: str) -> HttpResponse:
        answer = get(authorization=f"Bearer {TOKEN}", accept=accept)
        assert answer.status_code == 200
        return answer

    assert asked("")["Content-Type"].startswith("text/plain")
    openly = asked("application/openmetrics-text; version=1.0.0")
    assert openly["Content-Type"].startswith("application/openmetrics-text")
    assert openly.content.endswith(b"# EOF\n")
    for kind in ("application/openmetrics-text", "text/plain"):
        for version in (
            "x",
            "1..0",
            "1.0.0.x",
            "1.0.0 x",
            "2.0.0.\xb2",
            "9" * 5000,
            "1.0.0\n",
            "é",
        ):
            said = asked(f"{kind}; version={version}")["Content-Type"]
            assert said == "text/plain; version=0.0.4; charset=utf-8", (kind, version)


class Unknown:
    """A user who would have to be looked up in a database that is away."""

    @property
    def is_staff(self) -> bool:
        raise OperationalError("away")


@pytest.mark.django_db
def test_nobody_is_looked_up_for_the_token(switched: dict[str, Any]) -> None:
    """Nor is it a crash where a user can't be."""
    assert get(Unknown(), authorization=f"Bearer {TOKEN}").status_code == 200
    assert get(Unknown()).status_code == 401


# --- what hangs ----------------------------------------------------------------------


def test_a_database_that_hangs_does_not_hang_the_scrape(
    switched: dict[str, Any], django_db_blocker: Any
) -> None:
    """What it would say is left out, up is 0, and the process' own figures are there."""
    with (
        django_db_blocker.unblock(),
        postgres_farm() as farm,
        pointing_at(server := farm.server(), "own") as alias,
        override_settings(IDGEN=idgen_on(alias)),
    ):
        switched["within"] = 20.0
        next_id()
        segments["orders"].next_ids(3)
        assert scraped().one("tag_max_id", tag="orders") > 3
        _hang(switched, server)


def _hang(switched: dict[str, Any], server: PostgresServer) -> None:
    exporter.start().shared._settings = MetricsSettings(within=0.5, max_age=0.0)
    server.pause()
    try:
        for _ in range(3):
            found = scraped()
        for part in ("database:own", "tags:own", "generator:default"):
            assert found.one("up", part=part) == 0
        assert not found.samples("tag_max_id")
        assert not found.samples("worker_ids")
        assert found.one("ids_issued_total") == 1
        assert found.one("segment_ids_issued_total", tag="orders") == 3
        assert found.one("lease_seconds_left") > 0
        assert found.one("generator_exhaustion_seconds") > 1e9
    finally:
        server.resume()


@pytest.mark.django_db
def test_a_redis_that_hangs_does_not_hang_the_scrape(switched: dict[str, Any]) -> None:
    """The pool is told to be away; tags and databases are told as before."""
    switched["within"] = 20.0
    with redis_farm() as farm:
        server = farm.server()
        with (
            cache_alias("own", server.url) as alias,
            override_settings(IDGEN=pooled(alias)),
        ):
            segments["orders"].next_id()
            found = scraped()
            assert found.one("up", part="redis:own") == 1
            assert found.one("pool_memory_bytes") > 1000
            hang_redis(server)


def hang_redis(server: RedisServer) -> None:
    server.pause()
    try:
        found = scraped()
        assert found.one("up", part="redis:own") == 0
        assert found.one("up", part="database:default") == 1
        assert not found.samples("pool_memory_bytes")
        assert found.one("segment_ids_issued_total", tag="orders") == 1
    finally:
        server.resume()


def pooled(alias: str) -> dict[str, Any]:
    pool = {
        "BACKEND": "django_idgen.sources.pool.PoolSource",
        "OPTIONS": {"alias": alias, "source": {"OPTIONS": {"database": "default"}}},
    }
    return {"SEGMENTS": {"SOURCE": pool}}


def test_settings_that_cannot_work_are_a_figure_not_a_crash(switched: dict[str, Any]) -> None:
    """The scrape goes on."""
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": {"BACKEND": "no.such.Source"}}}):
        assert scraped().one("up", part="settings") == 0


# --- what a process writes without being asked ------------------------------------------


CHILD = """
import os
from contextlib import suppress
from django.core.signals import request_finished
from django_idgen.core.errors import NoFreeWorker
from django_idgen.process import lifecycle

ready, go = os.pipe(), os.pipe()

def child(*steps):
    \"\"\"A process that does one step at a time, when it is told to.\"\"\"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for step in steps:
                os.read(go[0], 1)
                step()
                os.write(ready[1], b".")
            code = 0
        finally:
            os._exit(code)
    return pid

def step():
    os.write(go[1], b".")
    assert os.read(ready[0], 1)
"""


def test_a_process_that_nobody_asks_tells_at_loads_renewals_and_its_end(
    script: Script, metrics_site: Site, files: Path
) -> None:
    """Its files are written then, and only then; another process serves them."""
    metrics_site.set_idgen({"METRICS": {"every": 3600}})
    script(
        CHILD
        + """
from tests.faults.processes import eventually

def load():
    segments["orders"].next_ids(2500)
    generators["default"].keeper.background = False  # it renews when the test says so
    next_id()

def take():
    for _ in range(7):
        next_id()
    segments["orders"].next_ids(3)

def renew():
    generators["default"].keeper.renew_in_background()

scraped()  # the parent has figures of its own, which are not the child's
pid = child(load, take, renew, take, lifecycle.close_all)
step()
eventually(lambda: scraped().sum("segment_loads_total", tag="orders"))  # by the loader's thread
found = scraped()
assert found.one("lease_held", pid=str(pid)) == found.sum("lease_acquires_total") == 1
assert 0 < found.one("lease_seconds_left", pid=str(pid)) <= 180
step()
found = scraped()
assert found.one("ids_issued_total") < 8
step()
found = scraped()
assert found.one("ids_issued_total") == 8
assert found.one("segment_ids_issued_total", tag="orders") == 2503
assert found.one("segment_buffer_ids", tag="orders") > 0
assert found.one("lease_renewals_total") == 1
step()
assert scraped().one("ids_issued_total") == 8
step()
assert os.waitpid(pid, 0)[1] == 0
found = scraped()
assert found.one("ids_issued_total") == 15
assert found.one("segment_ids_issued_total", tag="orders") == 2506
assert not found.samples("lease_held")
assert found.sum("segment_buffer_ids") == 0
"""
    )


def test_a_refused_lease_is_told_at_the_end_of_the_request_or_task(
    metrics_site: Site, files: Path
) -> None:
    """No lease, no renewal, no load: but what got no id comes to its end. An alert needs it."""
    entry = {"LEASES": {"OPTIONS": {"workers": [0, 1]}}}
    metrics_site.set_idgen({"GENERATORS": {"default": entry}, "METRICS": {"every": 0.1}})
    code = """
def refused(end):
    with suppress(NoFreeWorker):
        next_id()
    for _ in range(20):  # a look may take so long that the next one is put off
        time.sleep(0.1)
        end.send(None)

next_id()
pid = child(lambda: refused(request_finished), lambda: refused(celery.signals.task_postrun))
for number in (1, 2):
    step()
    assert scraped().one("lease_refusals_total", generator="default") == number
assert os.waitpid(pid, 0)[1] == 0
"""
    # A Celery worker imports Celery first.
    begin = "import time, celery.signals, django\ndjango.setup()\n"
    with metrics_site.python(begin + PREAMBLE + CHILD + code, setup=False) as running:
        assert running.finish() == 0, running.output


# --- many processes: whichever is free answers ----------------------------------------


WORKERS = 4


@pytest.fixture
def site(metrics_site: Site, files: Path) -> Site:
    """The site with metrics, whose processes share a directory of files."""
    return metrics_site


@contextmanager
def workers(site: Site, *options: str) -> Iterator[Web]:
    with serving(site, *gunicorn("--preload", "--workers", str(WORKERS), *options)) as web:
        yield web


def ids_in(taken: list[Taken], kind: str) -> int:
    return sum(len(entry[kind]) for entry in taken)


def counted(found: Scraped) -> tuple[float, float]:
    """Ids of the generator and of the tag."""
    return found.sum("ids_issued_total"), found.sum("segment_ids_issued_total", tag="orders")


def test_the_workers_counts_add_up_to_the_ids_taken(site: Site) -> None:
    """Whoever answers tells those of all; what the master took before the fork counts once."""
    site.environment["SITE_EARLY"] = "20"
    with workers(site) as web:
        taken = web.take_from_all(WORKERS) + site.recorded()
        wanted = (ids_in(taken, "ids"), ids_in(taken, "tag"))
        web.running.wait_until(lambda: counted(scrape(web.port)) == wanted)
        found = scrape(web.port)
        assert counted(found) == wanted
        # The library's own view, as django-prometheus has it, has the same counts.
        assert counted(scrape(web.port, "/files")) == wanted

        held = dict_of(found, "lease_held")
        assert len(held) == WORKERS + 1
        assert set(held.values()) == {1.0}
        assert dict_of(found, "worker_id").keys() == held.keys()
        assert len(set(dict_of(found, "worker_id").values())) == WORKERS + 1
        assert all(0 < left <= 180 for left in dict_of(found, "lease_seconds_left").values())
        assert all(abs(off) < 5 for off in dict_of(found, "clock_offset_seconds").values())
        assert found.one("worker_ids", state="held") == WORKERS + 1
        assert found.one("up", part="database:default") == 1
        assert found.one("segment_buffer_ids", tag="orders") > 0

        more = [web.take(7) for _ in range(10)]
        web.running.stop()
    # Each told its last figures when it ended.
    taken += more
    assert counted(read_files(site)) == (ids_in(taken, "ids"), ids_in(taken, "tag"))


def dict_of(found: Scraped, name: str) -> dict[str, float]:
    """The values of a gauge by process."""
    return {labels["pid"]: value for labels, value in found.samples(name)}


def read_files(site: Site) -> Scraped:
    """What the files say when all processes are gone."""
    from prometheus_client import generate_latest

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=site.environment["PROMETHEUS_MULTIPROC_DIR"])
    return Scraped(generate_latest(registry).decode())


def test_a_worker_that_was_killed_leaves_its_counts_and_not_its_gauges(site: Site) -> None:
    """Counters never go down; a lease that nobody holds any more is not told of."""
    with workers(site) as web:
        taken = web.take_from_all(WORKERS)
        wanted = (ids_in(taken, "ids"), ids_in(taken, "tag"))
        web.running.wait_until(lambda: counted(scrape(web.port)) == wanted)
        before = set(dict_of(scrape(web.port), "lease_held"))
        with suppress(urllib.error.URLError, http.client.HTTPException, ConnectionError):
            scrape(web.port, "/die")

        def one_is_gone() -> bool:
            return bool(before - set(dict_of(scrape(web.port), "lease_held")))

        web.running.wait_until(one_is_gone)
        assert counted(scrape(web.port)) >= wanted


def test_a_worker_without_a_lease_is_not_told_to_have_none_left(site: Site) -> None:
    """Figures of the parent's lease are not a child's, not even as 0 seconds."""
    site.environment["SITE_EARLY"] = "5"
    with workers(site) as web:
        web.take(1)
        eventually(lambda: len(dict_of(scrape(web.port), "lease_seconds_left")) == 2)
        web.running.send(signal.SIGHUP)
        found = scrape(web.port)
        assert all(left > 0 for left in dict_of(found, "lease_seconds_left").values())
