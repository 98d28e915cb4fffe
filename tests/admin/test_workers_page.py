"""The table of worker ids, and releasing one by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client, override_settings

from django_idgen import generators
from django_idgen.admin.workers import MOST_ROWS, entries_in_use
from django_idgen.core.inspection import WorkerEntry, WorkerMap, WorkerState
from django_idgen.core.lease import Lease
from django_idgen.ops import workers
from django_idgen.ops.workers import release_worker, worker_map
from django_idgen.process import maps
from tests import servers
from tests.admin.people import staff

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LIST = "/admin/django_idgen/workerlease/"

on_every_database = pytest.mark.django_db(databases=["default", "postgres"])

# --- what is shown ------------------------------------------------------------------------------


def drawn_map(*entries: tuple[int, WorkerState, str]) -> WorkerMap:
    found = {
        worker: WorkerEntry(
            worker=worker,
            state=state,
            holder=holder,
            acquired_at=NOW,
            seen_at=NOW,
            until=NOW + timedelta(seconds=180),
            window_left=125.0,
            clock_offset=0.012,
        )
        for worker, state, holder in entries
    }
    return WorkerMap("default", "ns", "database", range(2**22), found, NOW, range(2**22))


def test_what_needs_a_look_comes_first_and_is_found() -> None:
    """By state, then number; a search takes the whole number, or a part of the holder."""
    found = drawn_map(
        (1, WorkerState.HELD, "web-1"),
        (2, WorkerState.OVERDUE, "web-2"),
        (3, WorkerState.EXPIRED, "web-3"),
        (4, WorkerState.FREE, "web-4"),
        (21, WorkerState.HELD, "Batch-1"),
    )
    searches = ("", "WEB", "2", "batch web", "21 batch", "nobody")
    assert [[each.worker for each in entries_in_use(found, q)] for q in searches] == [
        [2, 1, 21, 3],
        [2, 1, 3],
        [2],
        [],
        [21],
        [],
    ]


@pytest.mark.django_db
def test_a_long_table_ends_and_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With how many are left."""
    entries = [(worker, WorkerState.HELD, "web") for worker in range(MOST_ROWS + 7)]
    monkeypatch.setattr(workers, "worker_map", lambda _alias: drawn_map(*entries))
    text = admin_client.get(LIST).content.decode()
    assert text.count('data-label="Holder"') == MOST_ROWS
    assert "7 more are not shown" in text
    assert f"{MOST_ROWS + 7} of {2**22} worker ids are in use" in text
    assert ">125 s<" in text
    assert ">+12 ms<" in text


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
    return f"{LIST}release/?generator=default&worker={worker}"


def _lease_of(client: Client, worker: int) -> str:
    found = re.search(
        r'name="lease" value="([^"]*)"', client.get(release_url(worker)).content.decode()
    )
    assert found is not None
    return unescape(found[1])


@on_every_database
def test_the_table_says_who_holds_what(admin_client: Client, worker: int) -> None:
    """And how many worker ids are in use; a search that finds nothing says so."""
    text = admin_client.get(LIST).content.decode()
    assert "1 of 1024 worker ids are in use" in text
    assert "(held 1, free 1023)" in text
    assert f'<th class="idgen-number">{worker}</th>' in text
    assert ">web-1 &lt;b&gt;<" in text
    assert "No worker id in use matches" in admin_client.get(LIST, {"q": "xyz"}).content.decode()
    assert ">web-1 &lt;b&gt;<" in admin_client.get(LIST, {"q": worker}).content.decode()


@on_every_database
def test_a_lease_is_released_when_that_is_confirmed(admin_client: Client, worker: int) -> None:
    """The page says what happens; the log has who did it; the mark stays, so no id repeats."""
    before = worker_map("default").entries[worker]
    assert "No id repeats" in admin_client.get(release_url(worker)).content.decode()
    assert LogEntry.objects.count() == 0
    form = {"lease": _lease_of(admin_client, worker)}
    mine = generators["default"].next_ids(100)
    done = admin_client.post(release_url(worker), form, follow=True)
    assert "was released" in done.content.decode()
    after = worker_map("default").entries[worker]
    assert after.state is WorkerState.FREE
    assert before.until is not None
    assert after.until is not None
    assert after.until >= before.until
    (logged,) = LogEntry.objects.all()
    assert "web-1" in logged.change_message
    assert logged.object_repr.endswith(f"/{worker}")
    again = admin_client.post(release_url(worker), form, follow=True)
    assert "There is nothing to release" in again.content.decode()
    from django_idgen.process.factory import build_generator

    mine += generators["default"].next_ids(100)  # it uses up its window
    with build_generator(maps.generator_settings("default")) as other:
        theirs = other.next_ids(100)
        assert not set(mine) & set(theirs)
        parts = other.decode(theirs[0])
    assert parts.worker != worker or parts.created >= before.until


@on_every_database
def test_what_changed_hands_meanwhile_is_not_released(admin_client: Client, worker: int) -> None:
    """The page was of another lease, or does not say of which."""
    for form in ({"lease": "web-0 2020-01-01T00:00:00+00:00"}, {"lease": ""}, {}):
        answer = admin_client.post(release_url(worker), form, follow=True)
        assert "It was not released" in answer.content.decode()
        assert worker_map("default").state(worker) is WorkerState.HELD


@on_every_database
def test_at_the_instant_of_a_hand_over_the_new_holder_keeps_it(
    admin_client: Client, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all was compared, but nothing done yet."""
    keeper: Any = generators["default"].keeper  # type: ignore[attr-defined]
    taken: list[Lease] = []

    def hand_over_and_release(*args: Any) -> bool:
        holder = worker_map("default").entries[worker].holder
        assert keeper.registry.release(keeper.lease, last_tick=keeper.lease.start)
        taken.append(keeper.registry.acquire(holder=holder).lease)
        return release_worker(*args)

    form = {"lease": _lease_of(admin_client, worker)}
    monkeypatch.setattr(workers, "release_worker", hand_over_and_release)
    answer = admin_client.post(release_url(worker), form, follow=True)
    assert [lease.worker for lease in taken] == [worker]
    assert "It was not released" in answer.content.decode()
    assert worker_map("default").state(worker) is WorkerState.HELD
    assert keeper.registry.renew(taken[0], last_tick=taken[0].start)
    assert LogEntry.objects.count() == 0


@on_every_database
@pytest.mark.parametrize("worker", ["default"], indirect=True)
def test_who_may_do_what(client: Client, worker: int) -> None:
    """Strangers log in; staff without rights get nothing; viewers look; changers release."""
    for url in (LIST, release_url(worker)):
        assert client.get(url).status_code == 302
        assert staff(name=url[-30:]).get(url).status_code == 403
    viewer = staff("view_workerlease", name="viewer")
    page = viewer.get(LIST).content.decode()
    assert "web-1" in page
    assert "release/" not in page
    for method in (viewer.get, viewer.post):
        assert method(release_url(worker)).status_code == 403
    changer = staff("change_workerlease", name="changer")
    assert f"worker={worker}" in changer.get(LIST).content.decode()
    form = {"lease": _lease_of(changer, worker)}
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(changer.get("/admin/").wsgi_request.user)
    assert strict.post(release_url(worker), form).status_code == 403
    assert worker_map("default").state(worker) is WorkerState.HELD


@pytest.mark.django_db
def test_nobody_holds_what_was_never_lent(admin_client: Client) -> None:
    """A release of it says so, and so does one past the layout, or of what is no number."""
    with override_settings(IDGEN={"GENERATORS": {"default": {"NAMESPACE": "none of it"}}}):
        for number in (5, 5000, 2**70, "x", ""):
            answer = admin_client.get(f"{LIST}release/", {"worker": number}, follow=True)
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
    """In place of the table and at a release: what is wrong, and no page of an error."""
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "gone": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"},
    }
    settings.IDGEN = {"GENERATORS": {"default": {"LEASES": leases}}}
    text = admin_client.get(LIST).content.decode()
    assert words in text
    assert 'role="alert"' in text
    asked = admin_client.get(release_url(5)).wsgi_request
    assert unescape(words) in " ".join(map(str, get_messages(asked)))
    maps.reset()


@pytest.mark.django_db
def test_a_generator_that_there_is_not_is_told(admin_client: Client) -> None:
    """Also where the settings are wrong."""
    with override_settings(IDGEN={}):
        page = admin_client.get(LIST, {"generator": "no/such"}).content.decode()
    assert "There is no generator &#x27;no/such&#x27;" in page
    with override_settings(IDGEN={"NOPE": 1}):
        assert "NOPE" in admin_client.get(LIST).content.decode()
    maps.reset()


@pytest.mark.django_db
@pytest.mark.parametrize("aware", [True, False])
def test_moments_are_those_of_the_project_s_zone(
    admin_client: Client, settings: Any, aware: bool
) -> None:
    """With their offset from UTC, also where USE_TZ is off; on the page that decodes, too."""
    settings.TIME_ZONE, settings.USE_TZ = "Asia/Shanghai", aware
    settings.IDGEN = {"GENERATORS": {"default": {"NAMESPACE": f"zone {aware}"}}}
    number = generators["default"].next_id()
    (held,) = worker_map("default").entries.values()
    for moment, url in (
        (held.acquired_at, LIST),
        (held.until, release_url(held.worker)),
        (held.acquired_at, f"/admin/django_idgen/decode/?id={number}"),
    ):
        assert moment is not None
        local = moment.astimezone(ZoneInfo("Asia/Shanghai"))
        assert f"{local:%Y-%m-%d %H:%M:%S} +0800" in admin_client.get(url).content.decode()
    maps.reset()
