"""The map of worker ids, and releasing one by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings

from django_idgen import generators
from django_idgen.admin.text import clock_offset_text, seconds_text
from django_idgen.admin.workers import LARGEST_MAP, STATES, cells_of, entries_in_use
from django_idgen.core.inspection import WorkerEntry, WorkerMap, WorkerState
from django_idgen.core.lease import Lease
from django_idgen.ops import workers
from django_idgen.ops.workers import release_worker, worker_map
from django_idgen.process import maps
from tests import servers
from tests.admin.people import staff

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LIST = "/admin/django_idgen/workerlease/"
MAP = f"{LIST}map/default/"

on_every_database = pytest.mark.django_db(databases=["default", "postgres"])

# --- the drawing ------------------------------------------------------------------------------


def entry(worker: int, state: WorkerState, **changes: Any) -> WorkerEntry:
    told: dict[str, Any] = {
        "holder": f"web-{worker}",
        "acquired_at": NOW,
        "seen_at": NOW,
        "until": NOW + timedelta(seconds=180),
        "window_left": 125.0,
        "clock_offset": 0.012,
    }
    return WorkerEntry(worker=worker, state=state, **told | changes)


def drawn_map(size: int, *entries: WorkerEntry, lent: range | None = None) -> WorkerMap:
    found = {each.worker: each for each in entries}
    lent = range(size) if lent is None else lent
    return WorkerMap("default", "ns", "database", range(size), found, NOW, lent)


EACH = [
    entry(1, WorkerState.HELD),
    entry(2, WorkerState.OVERDUE),
    entry(3, WorkerState.EXPIRED),
    entry(4, WorkerState.FREE),
]


def test_every_worker_id_has_a_cell_that_tells_its_state() -> None:
    """By a sign of its own, and in words with who holds it."""
    found = drawn_map(10, *EACH, lent=range(8))
    cells = cells_of(found, chosen=2)
    assert [cell["worker"] for cell in cells] == list(range(10))
    assert "".join(cell["sign"] for cell in cells) == "·●◐○····––"
    assert cells[1]["title"] == "1: held, web-1"
    assert cells[4]["title"] == "4: free"
    assert cells[9]["title"] == "9: reserved"
    assert [cell["worker"] for cell in cells if cell["is_chosen"]] == [2]
    assert len({sign for sign, _, _ in STATES.values()}) == len(WorkerState)


def test_a_large_layout_is_not_drawn() -> None:
    """The table has what is in use of it."""
    held = entry(LARGEST_MAP - 1, WorkerState.HELD)
    assert len(cells_of(drawn_map(LARGEST_MAP, held), None)) == LARGEST_MAP
    found = drawn_map(1 << 22, held)
    assert cells_of(found, None) == []
    assert entries_in_use(found, "state") == [held]


def test_those_in_use_are_sorted() -> None:
    """By state: what needs a look comes first. Unknown values come last."""
    strange = entry(9, WorkerState.HELD, clock_offset=-3.0, seen_at=None, window_left=None)
    found = drawn_map(16, *EACH, strange)
    order = {
        name: [each.worker for each in entries_in_use(found, name)]
        for name in ("worker", "state", "offset", "seen", "left")
    }
    assert order["worker"] == [1, 2, 3, 9]
    assert order["state"] == [2, 1, 9, 3]
    assert order["offset"][0] == 9
    assert order["seen"][-1] == order["left"][-1] == 9


def test_those_in_use_are_searched() -> None:
    """By the whole number, or a part of the holder."""
    found = drawn_map(32, *EACH, entry(21, WorkerState.HELD, holder="Batch-1"))
    searches = ("WEB", "2", "batch web", "21 batch", "nobody", "")
    assert [[each.worker for each in entries_in_use(found, "worker", q)] for q in searches] == [
        [1, 2, 3],
        [2],
        [],
        [21],
        [],
        [1, 2, 3, 21],
    ]


def test_times_are_told_in_few_words() -> None:
    """And what isn't known, not at all."""
    assert [seconds_text(each) for each in (None, 0.0, 59.9, 125, 7300)] == [
        "",
        "0 s",
        "59 s",
        "2 min 5 s",
        "2 h",
    ]
    assert [clock_offset_text(each) for each in (None, 0.0124, -0.5, 2.5)] == [
        "",
        "+12 ms",
        "-500 ms",
        "+2.5 s",
    ]


# --- the pages, on registries of each kind ------------------------------------------------------


@pytest.fixture(params=["default", "postgres", "redis"])
def worker(request: pytest.FixtureRequest, settings: Any) -> Iterator[int]:
    """A worker id that this process holds: in memory (SQLite), of a server, of Redis."""
    settings.IDGEN = {"GENERATORS": {"default": _lender(request)}}
    number = generators["default"].next_id()
    yield generators["default"].decode(number).worker  # type: ignore[attr-defined]
    maps.reset()


def _lender(request: pytest.FixtureRequest) -> dict[str, Any]:
    kind = str(request.param)
    if kind != "default":
        servers.require("postgres")
    options: dict[str, Any] = {"database": "default" if kind == "default" else "postgres"}
    entry: dict[str, Any] = {"OPTIONS": options}
    if kind == "redis":
        options["alias"] = request.getfixturevalue("redis")
        entry["BACKEND"] = "django_idgen.leases.redis.RedisLeases"
    name = f"leases page {request.node.name}"
    return {"NAMESPACE": name, "LEASES": entry, "OPTIONS": {"holder": "web-1 <b>"}}


def release_url(worker: int) -> str:
    return f"{LIST}release/{worker}/default/"


@on_every_database
def test_the_map_is_reached_from_the_leases(admin_client: Client, worker: int) -> None:
    """At once; it shows who holds what, in cells, details and a table, which comes first."""
    assert admin_client.get(LIST)["Location"] == MAP
    page = admin_client.get(MAP).content.decode()
    assert page.index('id="in-use"') < page.index('class="idgen-map"')
    assert "open>" not in page[page.index('class="idgen-fold"') :][:30]
    cells = re.findall(
        r'<a class="idgen-cell idgen-(\w+)" href="\?worker=(\d+)&amp;map=1#worker"', page
    )
    assert len(cells) == 1024
    assert [int(number) for state, number in cells if state == "held"] == [worker]
    assert f'aria-label="{worker}: held, web-1 &lt;b&gt;"' in page
    opened = admin_client.get(MAP, {"worker": worker, "map": 1}).content.decode()
    assert "open>" in opened[opened.index('class="idgen-fold"') :][:30]
    details = admin_client.get(MAP, {"worker": worker}).content.decode()
    assert "open>" not in details[details.index('class="idgen-fold"') :][:30]
    details = details[details.index('id="worker"') : details.index('id="in-use"')]
    assert "web-1 &lt;b&gt;" in details
    assert "End of the window" in details
    assert release_url(worker) in details


@on_every_database
@pytest.mark.parametrize("worker", ["default"], indirect=True)
def test_addresses_that_mean_nothing_show_the_map(admin_client: Client, worker: int) -> None:
    """A worker id past the layout, letters, a range that is none, an unknown order or page."""
    for query in (
        {"worker": 5000},
        {"worker": "x"},
        {"worker": "9" * 5000},
        {"worker": "१"},
        {"sort": "nope", "p": "x"},
        {"p": 99},
    ):
        answer = admin_client.get(MAP, query)
        assert answer.status_code == 200
        assert "idgen-map" in answer.content.decode()


@on_every_database
def test_a_live_lease_is_released_only_when_its_number_is_typed(
    admin_client: Client, worker: int
) -> None:
    """The page says what happens; the log has who did it; the mark stays, so no id repeats."""
    before = worker_map("default").entries[worker]
    page = admin_client.get(release_url(worker)).content.decode()
    assert "No id repeats" in page
    assert before.until is not None
    assert f"{before.until:%H:%M:}" in page
    form = {"seal": _seal_of(admin_client, worker)}
    for typed in ({}, {"confirm": ""}, {"confirm": str(worker + 1)}, {"confirm": "yes"}):
        refused = admin_client.post(release_url(worker), {**form, **typed})
        assert "Nothing was released" in refused.content.decode()
        assert worker_map("default").state(worker) is WorkerState.HELD
    assert LogEntry.objects.count() == 0
    done = admin_client.post(release_url(worker), {**form, "confirm": f" {worker} "}, follow=True)
    assert "was released" in done.content.decode()
    after = worker_map("default").entries[worker]
    assert after.state is WorkerState.FREE
    assert after.until is not None
    assert after.until >= before.until
    (entry_,) = LogEntry.objects.all()
    assert "web-1" in entry_.change_message
    assert entry_.object_repr.endswith(f"/{worker}")
    again = admin_client.post(release_url(worker), {**form, "confirm": worker}, follow=True)
    assert "There is nothing to release" in again.content.decode()


@on_every_database
def test_a_holder_that_is_released_goes_on_and_repeats_nothing(
    admin_client: Client, worker: int
) -> None:
    """It uses up its window; whoever comes after it starts past that."""
    from django_idgen.process.factory import build_generator

    before = worker_map("default").entries[worker]
    form = {"seal": _seal_of(admin_client, worker), "confirm": worker}
    assert admin_client.post(release_url(worker), form).status_code == 302
    mine = generators["default"].next_ids(100)
    with build_generator(maps.generator_settings("default")) as other:
        theirs = other.next_ids(100)
        assert not set(mine) & set(theirs)
        parts = other.decode(theirs[0])
    assert before.until is not None
    assert parts.worker != worker or parts.created >= before.until


def _seal_of(client: Client, worker: int) -> str:
    page = client.get(release_url(worker)).content.decode()
    found = re.search(r'name="seal" value="([^"]*)"', page)
    assert found is not None
    return unescape(found[1])


@on_every_database
@pytest.mark.parametrize("worker", ["default"], indirect=True)
def test_what_changed_hands_meanwhile_is_not_released(admin_client: Client, worker: int) -> None:
    """The page was of another lease."""
    form = {"seal": "web-0 2020-01-01T00:00:00+00:00", "confirm": worker}
    answer = admin_client.post(release_url(worker), form, follow=True)
    assert "now has another holder" in answer.content.decode()
    assert worker_map("default").state(worker) is WorkerState.HELD


@on_every_database
def test_at_the_instant_of_a_hand_over_the_new_holder_keeps_it(
    admin_client: Client, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all was compared, but nothing done yet: the page says that it changed hands."""
    keeper: Any = generators["default"].keeper  # type: ignore[attr-defined]
    taken: list[Lease] = []

    def hand_over_and_release(*args: Any) -> bool:
        holder = worker_map("default").entries[worker].holder
        assert keeper.registry.release(keeper.lease, last_tick=keeper.lease.start)
        taken.append(keeper.registry.acquire(holder=holder).lease)
        return release_worker(*args)

    form = {"seal": _seal_of(admin_client, worker), "confirm": worker}
    monkeypatch.setattr(workers, "release_worker", hand_over_and_release)
    answer = admin_client.post(release_url(worker), form, follow=True)
    assert [lease.worker for lease in taken] == [worker]
    assert "now has another holder" in answer.content.decode()
    assert worker_map("default").state(worker) is WorkerState.HELD
    assert keeper.registry.renew(taken[0], last_tick=taken[0].start)
    assert LogEntry.objects.count() == 0


@on_every_database
@pytest.mark.parametrize("worker", ["default"], indirect=True)
def test_who_may_do_what(client: Client, worker: int, settings: Any) -> None:
    """Strangers log in; staff without rights get nothing; viewers look; changers release."""
    for url in (MAP, LIST, release_url(worker)):
        assert client.get(url).status_code == 302
        assert staff(name=url[-30:]).get(url).status_code == 403
    viewer = staff("view_workerlease", name="viewer")
    page = viewer.get(MAP, {"worker": worker}).content.decode()
    assert "web-1" in page
    assert "release/" not in page
    for method in (viewer.get, viewer.post):
        assert method(release_url(worker)).status_code == 403
    changer = staff("change_workerlease", name="changer")
    assert release_url(worker) in changer.get(MAP, {"worker": worker}).content.decode()
    assert changer.get(release_url(worker)).status_code == 200
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(changer.get("/admin/").wsgi_request.user)
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.csrf.CsrfViewMiddleware"]
    form = {"seal": _seal_of(changer, worker), "confirm": worker}
    assert strict.post(release_url(worker), form).status_code == 403


@pytest.mark.django_db
def test_nobody_holds_what_was_never_lent(admin_client: Client) -> None:
    """A release of it says so, and so does one past the layout."""
    with override_settings(IDGEN={"GENERATORS": {"default": {"NAMESPACE": "none of it"}}}):
        for number in (5, 5000, 2**70):
            answer = admin_client.get(release_url(number), follow=True)
            assert "There is nothing to release" in answer.content.decode()
    maps.reset()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("leases", "words"),
    [
        (
            {
                "BACKEND": "django_idgen.leases.redis.RedisLeases",
                "OPTIONS": {"alias": "gone"},
            },
            "did not answer",
        ),
        (
            {
                "BACKEND": "django_idgen.leases.http.HttpLeases",
                "OPTIONS": {"base_urls": "http://127.0.0.1:1/", "token": "x"},
            },
            "only the service knows their holders",
        ),
        ({"BACKEND": "nowhere.Leases"}, "can&#x27;t be imported"),
    ],
)
def test_a_registry_that_can_t_be_asked_gives_a_message(
    admin_client: Client, settings: Any, leases: dict[str, Any], words: str
) -> None:
    """On the map and at a release: what is wrong, and no page of an error."""
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "gone": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"},
    }
    settings.IDGEN = {"GENERATORS": {"default": {"LEASES": leases}}}
    page = admin_client.get(MAP)
    assert page.status_code == 200
    assert words in page.content.decode()
    assert 'role="alert"' in page.content.decode()
    assert words in admin_client.get(release_url(5), follow=True).content.decode()
    maps.reset()


@pytest.mark.django_db
def test_a_generator_that_there_is_not_is_told(admin_client: Client) -> None:
    """With those that there are, and their maps."""
    with override_settings(IDGEN={}):
        page = admin_client.get(f"{LIST}map/no/such/").content.decode()
    assert "There is no generator &#x27;no/such&#x27;" in page
    assert MAP in page or "default" in page
    with override_settings(IDGEN={"NOPE": 1}):
        assert admin_client.get(MAP).status_code == 200
        assert admin_client.get(LIST, follow=True).status_code == 200
    maps.reset()


@pytest.mark.django_db
@pytest.mark.parametrize("aware", [True, False])
def test_moments_are_those_of_the_project_s_zone(
    admin_client: Client, settings: Any, aware: bool
) -> None:
    """Also where USE_TZ is off, and the rest of the admin shows local times."""
    settings.TIME_ZONE, settings.USE_TZ = "Asia/Shanghai", aware
    settings.IDGEN = {"GENERATORS": {"default": {"NAMESPACE": f"zone {aware}"}}}
    number = generators["default"].next_id()
    (held,) = worker_map("default").entries.values()
    assert held.until is not None
    local = held.until.astimezone(ZoneInfo("Asia/Shanghai"))
    for page in (f"{MAP}?worker={held.worker}", f"{LIST}release/{held.worker}/default/"):
        assert f"{local:%Y-%m-%d %H:%M:%S}" in admin_client.get(page).content.decode()
    assert held.acquired_at is not None
    since = held.acquired_at.astimezone(ZoneInfo("Asia/Shanghai"))
    page = admin_client.get("/admin/django_idgen/decode/", {"id": number}).content.decode()
    assert f"since {since:%Y-%m-%d %H:%M:%S}" in page
