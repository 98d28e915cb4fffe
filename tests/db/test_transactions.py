"""Rows made inside transactions: no id comes twice, and nobody waits, whatever is rolled back."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections, models, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import include, path

import django_idgen.ops.metrics
from django_idgen import generators, next_id, segments
from django_idgen.contrib.old_servers import cosid, finger_mark, go_leaf, leaf, tinyid
from django_idgen.ops import health
from django_idgen.ops.metrics import exporter
from django_idgen.ops.metrics.exporter import Exporter
from django_idgen.ops.probes import Probes
from django_idgen.process import maps
from django_idgen.settings.config import MetricsSettings
from tests import places, tiers
from tests.app.models import Folder, Invoice
from tests.places import STEP, savepoint_create
from tests.places import place as place
from tests.servers import free_port

RUNS = 3
"""Segments grow: so often, that one ends in the midst of it."""


@pytest.fixture(autouse=True)
def _who_waits_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    places.wait_endlessly(monkeypatch.setattr)


class Undo(Exception):
    """Raised to have a transaction rolled back."""


class Work:
    """Makes rows in ``alias``, and remembers every id."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.invoices: list[int] = []
        self.folders: list[int] = []

    def make(self, count: int = STEP + 5) -> None:
        """Rows of both kinds; with the default count, over the end of a segment."""
        for _ in range(count):
            self.invoices.append(Invoice.objects.using(self.alias).create().pk)
        self.folders.append(Folder.objects.using(self.alias).create().pk)

    def read(self) -> None:
        Invoice.objects.using(self.alias).count()

    def sql(self, statement: str) -> None:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement)

    @contextmanager
    def undone(self) -> Iterator[None]:
        with suppress(Undo), transaction.atomic(using=self.alias):
            yield
            raise Undo


def committed(work: Work) -> None:
    with transaction.atomic(using=work.alias, durable=True):
        work.make()


def after_a_read(work: Work) -> None:
    with transaction.atomic(using=work.alias):
        work.read()
        work.make()


def ids_between_read_and_write(work: Work) -> None:
    with transaction.atomic(using=work.alias):
        work.read()
        work.invoices += segments["app.invoice"].next_ids(2 * STEP)
        work.make(1)


def rolled_back(work: Work) -> None:
    with work.undone():
        work.make()
    work.make()


def rolled_back_savepoint(work: Work) -> None:
    with transaction.atomic(using=work.alias):
        work.make(1)
        with work.undone():
            work.make()
        work.make()


def savepoint_rollback(work: Work) -> None:
    with transaction.atomic(using=work.alias):
        savepoint = savepoint_create(using=work.alias)
        work.make()
        transaction.savepoint_rollback(savepoint, using=work.alias)
        work.make()


def raw_rollback_to(work: Work) -> None:
    with transaction.atomic(using=work.alias):
        work.make(1)
        work.sql("SAVEPOINT mine")
        work.make()
        work.sql("ROLLBACK TO SAVEPOINT mine")
        work.make()


def raw_rollback(work: Work) -> None:
    work.sql("BEGIN")
    work.make()
    work.sql("ROLLBACK")
    work.make()


def raw_transaction_after_a_read(work: Work) -> None:
    work.sql("BEGIN")
    work.read()
    work.invoices += segments["app.invoice"].next_ids(2 * STEP)
    work.make(1)
    work.sql("COMMIT")


def while_reading_rows(work: Work) -> None:
    """Django keeps a SELECT open; under WAL it fixes what the connection may still write."""
    work.make(6)
    for _ in Invoice.objects.using(work.alias).iterator(chunk_size=2):
        if len(work.invoices) > 3 * STEP:
            break
        work.make(STEP)


def without_autocommit(work: Work) -> None:
    transaction.set_autocommit(False, using=work.alias)
    try:
        work.read()
        work.make()
        transaction.rollback(using=work.alias)
        work.make()
        transaction.commit(using=work.alias)
    finally:
        transaction.set_autocommit(True, using=work.alias)


def in_one_insert(work: Work) -> None:
    with work.undone():
        work.read()
        made = Invoice.objects.using(work.alias).bulk_create(Invoice() for _ in range(3 * STEP))
        work.invoices += [invoice.pk for invoice in made]
    work.make()


SCENARIOS = [
    committed,
    after_a_read,
    ids_between_read_and_write,
    rolled_back,
    rolled_back_savepoint,
    savepoint_rollback,
    raw_rollback_to,
    raw_rollback,
    raw_transaction_after_a_read,
    while_reading_rows,
    without_autocommit,
    in_one_insert,
]


def assert_steady(alias: str, scenario: Callable[[Work], None]) -> None:
    works = [Work(alias) for _ in range(1 + RUNS)]
    works[0].make()  # from here on the generators hold their grants
    for work in works[1:]:
        scenario(work)
    for name in ("invoices", "folders"):
        ids = [value for work in works for value in getattr(work, name)]
        assert len(set(ids)) == len(ids)


def test_no_step_repeats_or_waits(place: str) -> None:
    """Whatever becomes of the caller's transaction, no id comes twice and no step waits."""
    for scenario in SCENARIOS:
        maps.reset()  # so that segments are short again
        assert_steady(place, scenario)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize(
    "place", ["journal", "postgres", *tiers.long("wal", "immediate", "mariadb")], indirect=True
)
def test_the_first_ids_of_all(place: str, scenario: Callable[[Work], None]) -> None:
    """Nor where it happens at first use: our tables are made and a lease taken inside it."""
    work = Work(place)
    scenario(work)
    assert len(set(work.invoices)) == len(work.invoices)
    assert len(set(work.folders)) == len(work.folders)


# --- requests -----------------------------------------------------------------

_requests: list[Work] = []


def _buy(request: HttpRequest) -> HttpResponse:
    work = _requests[-1]
    work.read()
    work.make()
    if "fail" in request.GET:
        raise Undo
    return HttpResponse()


def of_the_project(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


urlpatterns = [
    path("", _buy),
    path("project", of_the_project),
    path("live", health.live),
    path("ready", health.ready),
    path("metrics", django_idgen.ops.metrics.view),
    path("idgen/", include("django_idgen.rest.urls")),
    path("leaf/", include(leaf.urls())),
    path("go/", include(go_leaf.urls())),
    path("tinyid/", include(tinyid.urls())),
    path("cosid/", include(cosid.urls())),
    path("finger/", include(finger_mark.urls())),
]


def _request(work: Work) -> None:
    _requests.append(work)
    client = Client(raise_request_exception=False)
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        assert client.get("/").status_code == 200
        assert client.get("/?fail").status_code == 500
        assert client.get("/").status_code == 200


@pytest.mark.filterwarnings("ignore:Internal Server Error")
def test_atomic_requests(place: str) -> None:
    """With ATOMIC_REQUESTS no step of a view waits, and a failed request's ids don't come again."""
    connections.settings[place]["ATOMIC_REQUESTS"] = True
    try:
        assert_steady(place, _request)
    finally:
        connections.settings[place]["ATOMIC_REQUESTS"] = False
        _requests.clear()


# --- others who hold locks ------------------------------------------------------


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
@pytest.mark.parametrize("kind", places.SQLITE)
def test_a_locked_sqlite_database_blocks_no_id(kind: str, lock: str, directory: Path) -> None:
    """Ids go on while somebody else holds the database's write lock for long (hazard 32)."""
    with places.sqlite(directory, kind) as alias:
        work = Work(alias)
        work.make(1)
        with closing(sqlite3.connect(directory / "shop.sqlite3", isolation_level=None)) as other:
            other.execute(f"BEGIN {lock}")
            ids = segments["app.invoice"].next_ids(10 * STEP)
            maps.reset()  # gives the worker id back
            stamped = [next_id() for _ in range(10)]
            other.execute("ROLLBACK")
        work.make(1)
        assert len({*ids, *work.invoices}) == 10 * STEP + 2
        assert len({*stamped, *work.folders}) == 12


def test_the_callers_lock_blocks_no_other_thread(place: str) -> None:
    """While one thread's transaction has written, another one gets ids."""
    work, other = Work(place), Work(place)

    def take() -> None:
        other.invoices += segments["app.invoice"].next_ids(10 * STEP)
        other.folders.append(next_id())
        connections.close_all()

    with transaction.atomic(using=place):
        work.make()
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        work.make()
    assert other.folders
    assert not set(work.invoices) & set(other.invoices)


# --- what the caller's connection sees --------------------------------------------


def test_grants_are_no_queries_of_the_callers(place: str) -> None:
    """Neither a first use nor a fetch runs a query on the caller's connection."""
    with CaptureQueriesContext(connections[place]) as queries:
        next_id()
        segments["app.invoice"].next_ids(3 * STEP)
        generators["default"].next_ids(10)
    assert list(queries) == []


@pytest.mark.parametrize("model", [Invoice, Folder])
def test_a_row_is_one_query(place: str, model: type[models.Model]) -> None:
    """A create() is one INSERT, new segment or not, inside atomic() or not (hazard 39)."""
    manager = model._default_manager.using(place)
    with CaptureQueriesContext(connections[place]) as queries:
        for _ in range(2 * STEP):
            manager.create()
    assert len(queries) == 2 * STEP
    assert all(query["sql"].startswith("INSERT") for query in queries)
    with transaction.atomic(using=place), CaptureQueriesContext(connections[place]) as queries:
        for _ in range(2 * STEP):
            manager.create()
    assert len(queries) == 2 * STEP


# --- ATOMIC_REQUESTS on any database leaves our views alone, down to one that is dead ---


REPORTS = "reports"


ANSWERS = {
    "/live": 200,
    "/ready": 200,
    "/metrics": 401,
    "/idgen/health/live": 200,
    "/idgen/health/ready": 200,
    "/idgen/tags/orders/ids": 401,
    "/idgen/generators/default/ids": 401,
    "/idgen/generators/default/leases": 401,
    "/idgen/tags/": 401,
    "/idgen/decode?id=1": 401,
    "/leaf/api/segment/get/orders": 401,
    "/go/api/leaf?biz_tag=orders": 401,
    "/tinyid/id/nextId?bizType=orders": 200,
    "/cosid/ids": 401,
    "/finger/idGen/getId": 401,
}
"""What each view says to somebody unknown; TinyID's tells of it in its own words."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Client]:
    """Of a project with two databases, of which the second one, which is dead, wraps requests."""
    settings.ROOT_URLCONF = __name__
    monkeypatch.setattr(health, "_probes", Probes())
    # One that is switched on counts for good, in the tests after this one, too.
    monkeypatch.setattr(exporter, "start", lambda: Exporter(MetricsSettings()))
    maps.reset()
    dead = {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "NAME": "reports"}
    connections.settings[REPORTS] = {
        **connections.settings["default"],
        **dead,
        "PORT": str(free_port()),
        "ATOMIC_REQUESTS": True,
    }
    yield Client()
    maps.reset()
    connections[REPORTS].close()
    del connections[REPORTS]
    del connections.settings[REPORTS]


@pytest.mark.django_db
def test_our_views_begin_no_transaction(client: Client) -> None:
    """Each answers, whatever has become of a database that it has nothing to do with."""
    assert {url: client.get(url).status_code for url in ANSWERS} == ANSWERS


def test_others_begin_theirs(client: Client, django_db_blocker: Any) -> None:
    """A view of the project fails with it, as the project asked for."""
    with django_db_blocker.unblock(), pytest.raises(OperationalError):
        client.get("/project")
