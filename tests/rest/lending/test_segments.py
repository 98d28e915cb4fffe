"""``POST tags/<tag>/segment``: whole segments, bounded, each granted once."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.cache import cache
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client, RequestFactory, override_settings
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_idgen import segments
from django_idgen.contrib.old_servers.cosid import CosId
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.core.segment import MAX_ID
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags import edits as tag_edits
from django_idgen.process import maps
from django_idgen.sources.http import HttpSource
from django_idgen.sources.memory import MemorySource
from django_idgen.sources.server import FAILOVER_SKIP
from django_idgen.testing.contracts.lenders import at_once
from tests.admin.people import staff
from tests.places import make_tables, sqlite
from tests.remote.service import EVERYTHING, SECRET, one_token, service
from tests.sources.pool import test_project as pools

STEP = 10


@pytest.fixture(params=["sqlite", "postgres"])
def alias(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any) -> Iterator[str]:
    if request.param == "sqlite":
        with django_db_blocker.unblock(), sqlite(tmp_path) as alias:
            yield alias
    else:
        yield request.getfixturevalue(request.param)


def idgen(alias: str, **rest: object) -> dict[str, Any]:
    return {
        "REST": {"make_tags": True, **rest},
        "SEGMENTS": {
            "SOURCE": {"OPTIONS": {"database": alias}},
            "OPTIONS": {"default_step": STEP},
        },
    }


@pytest.fixture
def api(alias: str) -> Iterator[Api]:
    """The API over an empty database with our tables."""
    make_tables(alias)
    with (
        one_token(),
        override_settings(ROOT_URLCONF="tests.remote.urls", IDGEN=idgen(alias)),
    ):
        yield Api(alias)


class Api:
    """The API as a client of it, with a token."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.client = Client(raise_request_exception=True)

    def post(self, tag: str = "t", body: object = None, secret: str = SECRET) -> Any:
        return self.client.post(
            reverse("django_idgen:tag-segment", args=[tag]),
            data=body if isinstance(body, (str, bytes)) else json.dumps(body or {}),
            content_type="application/json",
            headers={"Authorization": f"Bearer {secret}"},
        )

    def get(self, tag: str = "t", query: str = "") -> Any:
        url = reverse("django_idgen:tag-segment", args=[tag]) + query
        return self.client.get(url, headers={"Authorization": f"Bearer {SECRET}"})

    def tags(self) -> dict[str, int]:
        return dict(LeafAlloc.objects.using(self.alias).values_list("pk", "max_id"))


def test_a_segment_is_what_the_source_gives(api: Api) -> None:
    """Ids as text, never cacheable; each request is the next segment, and says which it answers."""
    first = api.post(body={"nonce": "n1"})
    assert first.status_code == 200
    assert "no-store" in first["Cache-Control"]
    body = first.json()
    installation = body.pop("installation")
    assert len(installation) >= 16
    assert body == {
        "tag": "t",
        "start": "1",
        "stop": "11",
        "step": STEP,
        "delta": 1,
        "max_segment": 1_000_000,
        "nonce": "n1",
    }
    second = api.post(body={"nonce": "n1", "installation": installation}).json()
    assert second["start"] == "11"
    assert api.get().json() == {
        "tag": "t",
        "installation": installation,
        "max_segment": 1_000_000,
    }
    assert api.get(query="?max_id=1").json()["max_id"] == "21"


def test_a_service_without_tags_of_its_own_passes_the_question_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far a tag is says the source that has it."""
    monkeypatch.setattr(segments.allocator(), "source", MemorySource())
    end = api.post().json()["stop"]
    assert api.get(query="?max_id=1").json()["max_id"] == end


def test_nothing_comes_out_of_what_the_service_has_loaded(api: Api) -> None:
    """Its own ids and those of the borrower never meet, whoever is first."""
    own = segments["t"].next_ids(3)
    body = api.post(body={"at_least": 25}).json()
    lent = range(int(body["start"]), int(body["stop"]))
    own += segments["t"].next_ids(100)
    assert len(lent) == 25
    assert not set(own) & set(lent)


def test_a_segment_survives_the_callers_transaction(api: Api) -> None:
    """No rollback brings it back (I4)."""
    with transaction.atomic(api.alias):
        first = api.post().json()
        transaction.set_rollback(True, using=api.alias)
    assert int(api.post().json()["start"]) >= int(first["stop"])


def test_a_client_may_have_exactly_what_it_asks_for(api: Api) -> None:
    """Without a step on top, which a service that lends on would let be lost.

    A JSON number or decimal text, for what may not fit a JavaScript number.
    """
    for wanted, count in (
        ({"times": 0, "at_least": 3}, 3),
        ({"times": 3}, 30),
        ({"times": "3"}, 30),
        ({"at_least": "30"}, 30),
    ):
        body = api.post(body=wanted).json()
        assert int(body["stop"]) - int(body["start"]) == count
    # What others may have had is skipped as well.
    first = 500 + FAILOVER_SKIP * 2 * 30
    assert api.post(body={"floor": "500"}).json()["start"] == str(first)


WRONG: dict[str, tuple[Any, ...]] = {
    "times": (-1, 10**10, 1.5, True, "three", None, [1]),
    "at_least": (0, 10**9, 1_000_001, "9" * 400),
    "floor": (-1, 2**65, "three", {}),
    "nonce": ("x" * 65, "a\0b", True),
    "installation": (["x"],),
    "tag": ("another", 7),
}


@pytest.mark.parametrize("alias", ["sqlite"], indirect=True)
def test_bad_input_is_named_and_changes_nothing(api: Api) -> None:
    """400 with the field, and no tag is made."""
    bodies: list[tuple[str, Any]] = [
        *((field, {field: value}) for field, values in WRONG.items() for value in values),
        ("non_field_errors", [1]),
        *(("detail", body) for body in ("{", "[" * 50_000, b"\xff\xfe")),
    ]
    for field, body in bodies:
        answer = api.post("new", body)
        assert answer.status_code == 400, (body, answer.content)
        assert field in answer.json()
    assert not api.tags()


@pytest.mark.parametrize("alias", ["sqlite"], indirect=True)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.dictionaries(
        st.sampled_from(["times", "at_least", "floor", "nonce", "installation", "tag"]),
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(),
            st.lists(st.integers(), max_size=2),
        ),
    )
)  # fmt: skip
def test_whatever_is_sent_there_is_no_500(api: Api, body: dict[str, object]) -> None:
    """A segment, or a refusal."""
    assert api.post(body=body).status_code in {200, 400, 403, 409}


@pytest.mark.parametrize("alias", ["sqlite"], indirect=True)
def test_an_empty_value_in_a_form_is_no_missing_one(api: Api) -> None:
    """A floor or an installation that was left empty is refused: without it, ids could repeat."""
    for field in ("floor", "installation", "times"):
        answer = api.client.post(
            reverse("django_idgen:tag-segment", args=["t"]),
            data=f"{field}=",
            content_type="application/x-www-form-urlencoded",
            headers={"Authorization": f"Bearer {SECRET}"},
        )
        assert answer.status_code == 400
        assert field in answer.json()
    assert not api.tags()


def test_only_a_token_that_names_the_tag_may_take(api: Api) -> None:
    """401 without one, 403 with another's, for both methods; nothing is made."""
    anonymous = api.client.post(reverse("django_idgen:tag-segment", args=["t"]))
    assert anonymous.status_code == 401
    assert api.post(secret=SECRET + "x").status_code == 401
    with one_token(replace(EVERYTHING, tags=("shop.*",))):
        assert api.post().status_code == 403
        assert api.get().status_code == 403
        assert api.post("shop.orders").status_code == 200
    assert list(api.tags()) == ["shop.orders"]


def test_an_unknown_tag_is_made_only_where_that_is_allowed(api: Api) -> None:
    """404 otherwise, and it is not there afterwards."""
    api.post("known")
    with override_settings(IDGEN=idgen(api.alias, make_tags=False)):
        assert api.post("unknown").status_code == 404
        assert api.get("unknown").status_code == 404
        assert api.post("known").status_code == 200
    assert list(api.tags()) == ["known"]


def test_max_segment_bounds_what_one_request_gets(api: Api) -> None:
    """However large the demand or the row's step is; the rest of a step is a gap, no repeat."""
    with override_settings(IDGEN=idgen(api.alias, max_segment=15)):
        for demand in ({}, {"times": 1000}, {"at_least": 15}, {"times": 10**9}):
            body = api.post(body=demand).json()
            assert 10 <= int(body["stop"]) - int(body["start"]) <= 15
        assert api.post(body={"at_least": 16}).status_code == 400
        assert api.tags()["t"] <= 1 + 4 * 15
        LeafAlloc.objects.using(api.alias).filter(pk="t").update(step=100)
        one, two = api.post().json(), api.post().json()
        assert int(one["stop"]) - int(one["start"]) == 15
        assert int(two["start"]) >= int(one["stop"])


def test_a_floor_may_not_use_a_tag_up(api: Api) -> None:
    """One past ``max_skip`` is refused with the numbers; one within it is what it always was."""
    with override_settings(IDGEN=idgen(api.alias, max_skip=1000)):
        api.post()
        first = 900 + FAILOVER_SKIP * 2 * 10  # what others may have had is skipped as well
        assert api.post(body={"floor": 900}).json()["start"] == str(first)
        for floor in (5000, MAX_ID, MAX_ID - 5):
            answer = api.post(body={"floor": floor})
            assert answer.status_code == 403
            body = answer.json()
            assert f"idgen_skip t --to {floor}" in body["detail"]
            assert (body["code"], body["floor"]) == ("skip_too_far", str(floor))
            assert body["max_skip"] == "1000"
            assert first < int(body["max_id"]) < first + 100
        assert int(api.post().json()["start"]) < first + 100
    # There are no ids there at all: the end, and the tag is as it was.
    answer = api.post(body={"floor": str(MAX_ID + 1)})
    assert (answer.status_code, answer.json()["code"]) == (409, "exhausted")
    assert int(api.post().json()["start"]) < first + 100


def test_a_floor_that_this_process_knows_nothing_of_is_looked_up(api: Api) -> None:
    """A tag that stands at 10**12 serves floors there, though the service has just started."""
    api.post()
    stands = 10**12
    LeafAlloc.objects.using(api.alias).filter(pk="t").update(max_id=stands)
    connections[api.alias].close()
    with override_settings(IDGEN=idgen(api.alias, max_skip=1000)):
        assert int(api.post(body={"floor": stands - 50}).json()["start"]) >= stands
        assert int(api.post(body={"floor": stands + 500}).json()["start"]) >= stands + 500
        assert api.post(body={"floor": stands + 10**6}).status_code == 403


def test_a_client_of_another_database_is_refused(api: Api) -> None:
    """Before anything is granted, with both names."""
    answer = api.post("new", {"installation": "f" * 16})
    assert answer.status_code == 409
    body = answer.json()
    assert body["code"] == "installation_mismatch"
    assert body["expected"] == "f" * 16
    assert body["installation"] == api.get("new").json()["installation"]
    assert "new" not in api.tags()


@pytest.mark.parametrize("alias", ["sqlite"], indirect=True)
def test_the_projects_own_throttles_count_segments(api: Api) -> None:
    """As they count ids."""
    cache.clear()
    own = {"DEFAULT_THROTTLE_CLASSES": ["tests.rest.lending.test_leases.Once"]}
    with override_settings(REST_FRAMEWORK=own):
        assert [api.post().status_code for _ in range(2)] == [200, 429]
    cache.clear()


# --- floors, as people and programs send them ----------------------------------------


def without_replicas(alias: str, **rest: object) -> dict[str, Any]:
    """Settings with which a floor moves a tag just there: no other server may have had more."""
    found = idgen(alias, **rest)
    found["SEGMENTS"]["SOURCE"]["OPTIONS"]["failover_skip"] = 1
    return found


@pytest.fixture
def site(no_tags: None) -> Iterator[None]:
    """The API over the tests' own database, where users are."""
    idgen = without_replicas("default")
    with one_token(), override_settings(ROOT_URLCONF="tests.remote.urls", IDGEN=idgen):
        yield
    maps.reset()


def take(client: Client, floor: int = 0) -> Any:
    url = reverse("django_idgen:tag-segment", args=["t"])
    return client.post(url, json.dumps({"floor": floor}), content_type="application/json")


@pytest.mark.usefixtures("site")
def test_a_user_without_the_right_to_change_tags_takes_no_segment() -> None:
    """403 with the name of the right, and no tag is made or moved; ids one by one are for all."""
    client = staff("view_leafalloc", "add_leafalloc")
    url = reverse("django_idgen:tag-segment", args=["t"])
    for answer in (take(client), take(client, 10**6), client.get(url)):
        assert answer.status_code == 403
        assert "django_idgen.change_leafalloc" in answer.json()["detail"]
    assert not LeafAlloc.objects.exists()
    assert client.get(reverse("django_idgen:tag-ids", args=["t"])).status_code == 200


@pytest.mark.usefixtures("site")
def test_a_user_with_it_leaves_a_trail() -> None:
    """In the tag's history: from where to where it was moved. A floor below leaves none."""
    client = staff("change_leafalloc")
    first = take(client).json()
    assert take(client, int(first["stop"])).json()["start"] == first["stop"]
    assert not LogEntry.objects.exists()
    assert int(take(client, 5000).json()["start"]) >= 5000
    entry = LogEntry.objects.get()
    assert (entry.object_id, str(entry.user)) == ("t", "staff")
    assert "21" in entry.change_message
    assert "5000" in entry.change_message


def restored(alias: str, max_id: int) -> None:
    """The service's database is put back to an earlier state, and the service started anew."""
    LeafAlloc.objects.using(alias).update(max_id=max_id)
    maps.reset()


@pytest.mark.parametrize("alias", ["postgres", "mariadb"], indirect=True)
def test_a_client_is_served_after_the_database_was_restored(
    alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Above all that it has had, as long as that lies within ``max_skip`` of the row."""
    with service(without_replicas(alias, max_skip=1000)) as url:
        source = HttpSource(base_urls=url, token=SECRET, timeout=60)
        had = [source.fetch("t") for _ in range(30)][-1]
        restored(alias, 1)
        with caplog.at_level(logging.INFO, "django_idgen"):
            segment = source.fetch("t", floor=had.stop)
        assert segment.start >= had.stop
        # A token is no user of the project, so the admin has no row for it.
        (told,) = [each for each in caplog.messages if "changed tag" in each]
        assert told.startswith("'tests' changed tag 't': Skipped ahead")
        assert str(segment.start) in told
        assert source.fetch("t", floor=segment.stop).start == segment.stop


@pytest.mark.parametrize("alias", ["postgres", "mariadb"], indirect=True)
def test_beyond_the_bound_the_client_names_the_operators_command(alias: str) -> None:
    """With it run as it is told, the client goes on, above all that it has had."""
    with service(without_replicas(alias, max_skip=100)) as url:
        source = HttpSource(base_urls=url, token=SECRET, timeout=60)
        had = [source.fetch("t") for _ in range(30)][-1]
        restored(alias, 1)
        with pytest.raises(SegmentUnavailable) as caught:
            source.fetch("t", floor=had.stop)
        assert f"'manage.py idgen_skip t --to {had.stop}'" in str(caught.value)
        assert "access token" not in str(caught.value)
        call_command("idgen_skip", "t", "--to", str(had.stop), "--yes")
        assert source.fetch("t", floor=had.stop).start >= had.stop


# --- out of a pool, cut and given back, while the service takes ids of its own ---------

LENT = "shop.lent"
MOST = 7
"""Ids that are lent at once: a third of a step, so that the rest goes to the pool."""
TURNS = 25


def test_what_is_cut_off_and_given_back_is_given_out_once(postgres: str, redis: str) -> None:
    """To whomever: local callers, clients with floors, CosId's, and who clears and fills."""
    idgen = {**pools.idgen_on(redis, postgres), "REST": {"max_segment": MOST, "max_skip": 200}}
    with override_settings(IDGEN=idgen, ROOT_URLCONF="tests.remote.urls"), one_token():
        pool: Any = segments.allocator().source
        tag_edits.make_tag(LENT, step=20)
        found = at_once(4, lambda who: turns(who, postgres))
        ids = Counter(each for some in found for each in some)
        pool.clear([LENT])
        segments.close()
    assert len(ids) > 4 * TURNS
    assert max(ids.values()) == 1


def turns(who: int, alias: str) -> list[int]:
    chance = random.Random(who)
    api = Api(alias)
    cosid = CosId(None, "default", tags=["*"])
    found: list[int] = []
    try:
        for _ in range(TURNS):
            act = chance.randrange(6)
            if act == 0:
                found += segments[LENT].next_ids(chance.randrange(1, 30))
            elif act in (1, 2):
                found += lent(api, max(found, default=0) + chance.choice([0, 1, 150]))
            elif act == 3:
                step = chance.randrange(1, MOST)
                asking = RequestFactory().patch(f"/?step={step}")
                last = int(cosid.take(asking, *LENT.split(".")).content)
                found += range(last - step + 1, last + 1)
            elif act == 4:
                tag_edits.clear_here(LENT)
            else:
                tag_edits.fill_pool(LeafAlloc.objects.using(alias).get(pk=LENT))
    finally:
        connections.close_all()
    return found


def lent(api: Api, floor: int) -> range:
    answer = api.post(LENT, {"floor": floor})
    said = answer.json()
    if answer.status_code == 403:
        assert said["code"] == "skip_too_far"
        return range(0)
    if answer.status_code == 503:  # a busy server did not answer for a second
        return range(0)
    assert answer.status_code == 200, said
    ids = range(int(said["start"]), int(said["stop"]), said["delta"])
    assert floor <= ids[0]
    assert len(ids) <= MOST
    return ids
