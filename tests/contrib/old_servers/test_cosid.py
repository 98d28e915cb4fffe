"""Answers as those of CosId's proxy server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from django_idgen import generators, segments
from django_idgen.models import LeafAlloc
from django_idgen.process import maps
from django_idgen.rest.tokens import make_token
from tests.places import empty_place as empty_place
from tests.places import idgen_on

from .conftest import TAG, asking, assert_never_cached, marks
from .old_clients import CosIdMachine

MACHINE = "machineBit=10&instanceId=10.0.0.1:80&stable=false&safeGuardDuration=PT5M"


# --- ids -------------------------------------------------------------------------------


def test_an_id_is_a_number_or_text(client: Client, tag: str) -> None:
    """Of the default generator, of one by its alias, or of a tag of the mount's namespace."""
    LeafAlloc.objects.create(biz_tag=f"cosid.{tag}")
    shared = client.get("/cosid/ids")
    assert int(shared.content) > 0
    assert shared.headers["Content-Type"] == "application/json"
    assert_never_cached(shared)
    assert int(client.get("/cosid/ids/__share__").content) > int(shared.content)
    assert int(client.get("/cosid/ids/second").content) > 0
    assert client.get(f"/cosid/ids/{tag}").content == b"1"
    text = client.get(f"/cosid/ids/as-string/{tag}")
    assert (text.content, text.headers["Content-Type"]) == (b"2", "text/plain;charset=UTF-8")
    assert int(client.get("/cosid/ids/as-string").content) > 0


def test_an_unknown_name_is_an_error(tag: str) -> None:
    """In CosId's form, with a status that says so; nothing is made."""
    for name in ("nothing", "%00", "x" * 129, "a/b", "%F0%9F%98%80"):
        answer = Client().get(f"/open/cosid/ids/{name}")
        assert answer.status_code in (400, 404), name
        assert set(answer.json()) == {"code", "msg", "errors"}
        assert answer.json()["errors"] == []
    long = f"{'x' * 100}/{'y' * 100}"
    for path in ("a/b", "%00/b", "a/%00", long, "a/%F0%9F%98%80", "a/b/c"):
        for method, url in (("patch", "segments"), ("post", "segments/distributor")):
            answer = getattr(Client(), method)(f"/open/cosid/{url}/{path}?step=10")
            assert answer.status_code in (400, 404), path
    assert marks() == {TAG: 1}


# --- machine ids -----------------------------------------------------------------------


def test_a_machine_id_to_the_byte(client: Client) -> None:
    """A worker id of the generator, and milliseconds."""
    answer = client.post(f"/cosid/machines/shop?{MACHINE}")
    said = json.loads(answer.content)
    assert answer.content.decode() == (
        f'{{"machineId":{said["machineId"]},"lastTimeStamp":{said["lastTimeStamp"]}}}'
    )
    assert answer.headers["Content-Type"] == "application/json"
    assert said["machineId"] in generators["default"].layout.workers
    assert client.patch(f"/cosid/machines/shop?{MACHINE}").json()["machineId"] == said["machineId"]
    assert (
        client.delete(f"/cosid/machines/shop?{MACHINE}").json()["machineId"] == (said["machineId"])
    )


def test_when_all_are_held_it_is_m_01(client: Client, settings: Any) -> None:
    """HTTP 400, naming the way out."""
    leases = {"LEASES": {"OPTIONS": {"workers": [0, 4]}}}
    settings.IDGEN = {
        "GENERATORS": {"default": leases, "second": {}},
        "REST": {"max_leases": 4},
    }
    instances = [CosIdMachine(asking(client), "shop", f"i{n}") for n in range(5)]
    assert [instance.start(bits=2) for instance in instances] == [True] * 4 + [False]
    assert {instance.machine for instance in instances[:4]} == {0, 1, 2, 3}
    (error,) = instances[4].errors
    assert (error["code"], error["errors"]) == ("M-01", [])


BAD = [
    "machineBit=&instanceId=a",
    "instanceId=a",
    "machineBit=x&instanceId=a",
    "machineBit=-1&instanceId=a",
    "machineBit=63&instanceId=a",
    "machineBit=99999999999999999999&instanceId=a",
    "machineBit=5&instanceId=a",
    "machineBit=10",
    "machineBit=10&instanceId=",
    "machineBit=10&instanceId=%20a",
    "machineBit=10&instanceId=%00",
    "machineBit=10&instanceId=%F0%9F%98%80",
    "machineBit=10&instanceId=" + "x" * 300,
    "machineBit=10&instanceId=a&stable=perhaps",
    "machineBit=10&instanceId=a&safeGuardDuration=5",
    "machineBit=10&instanceId=a&safeGuardDuration=PT0S",
    "machineBit=10&instanceId=a&safeGuardDuration=-PT5M",
    "machineBit=10&instanceId=a&safeGuardDuration=PT5M1S",
    "machineBit=10&instanceId=a&safeGuardDuration=PT2562047788015H12M55.807S",
    "machineBit=10&instanceId=a&safeGuardDuration=P" + "9" * 400 + "D",
]


def test_bad_parameters_are_named(db: None) -> None:
    """HTTP 400, and nothing is lent: among them a guard longer than ours, or none at all.

    So an instance without a machine id is M-02.
    """
    named = {"machineBit", "instanceId", "stable", "safeGuardDuration"}
    for query in BAD:
        answer = Client().post(f"/open/cosid/machines/shop?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "400"), answer.content
        assert any(name in answer.json()["msg"] for name in named), query
    assert Client().patch("/open/cosid/machines/shop?instanceId=a").status_code == 400
    for method in ("patch", "delete"):
        answer = getattr(Client(), method)("/open/cosid/machines/shop?instanceId=a&stable=true")
        assert (answer.status_code, answer.json()["code"]) == (400, "M-02")


def test_namespaces_are_those_of_the_mount(client: Client) -> None:
    """Another one is unknown; what a token names is the generator."""
    for name in ("nothing", "a/b", "%00", "x" * 500):
        assert client.post(f"/cosid/machines/{name}?{MACHINE}").status_code == 404
    assert client.post(f"/cosid/machines/other?{MACHINE}").status_code == 403
    ids_only = make_token("ids", tags=["*"], generators=["*"])[1]
    other = Client(headers={"Authorization": f"Bearer {ids_only}"})
    assert other.post(f"/cosid/machines/shop?{MACHINE}").status_code == 403


def test_a_user_borrows_no_machine_id(user: Callable[..., Client]) -> None:
    """They are for programs with a token."""
    assert user("add_leafalloc").get("/cosid/ids").status_code == 200
    # The session needs its CSRF token besides, but that is not what is missing.
    assert user().post(f"/cosid/machines/shop?{MACHINE}").status_code == 403


# --- segments --------------------------------------------------------------------------


def test_a_distributor_makes_its_tag_for_who_may(
    user: Callable[..., Client], settings: Any, db: None
) -> None:
    """It begins above the offset, with the client's step; a second one finds it as it is.

    Where the setting says so, anybody makes one.
    """
    may_not = make_token("t", tags=["shop.*"])[1]
    client = Client(headers={"Authorization": f"Bearer {may_not}"})
    url = "/cosid/segments/distributor/shop/orders?offset=100&step=10"
    assert client.post(url).status_code == 404
    assert marks() == {}
    assert user().post(url).status_code == 404
    assert user("add_leafalloc", "view_leafalloc").post(url).content == b"100"
    row = LeafAlloc.objects.get(pk="shop.orders")
    assert (row.max_id, row.step) == (101, 10)
    again = client.post("/cosid/segments/distributor/shop/orders?offset=0&step=50")
    assert (again.status_code, again.content) == (200, b"100")
    assert client.patch("/cosid/segments/shop/orders?step=10").content == b"110"
    settings.IDGEN = {**settings.IDGEN, "REST": {"make_tags": True}}
    one = Client().post("/open/cosid/segments/distributor/shop/new?offset=0&step=20")
    assert (one.status_code, one.content) == (200, b"0")
    assert Client().patch("/open/cosid/segments/shop/new?step=20").content == b"20"


@pytest.fixture
def tags_of(empty_place: str, settings: Any) -> str:
    """A database of each kind in turn, whose tags are made by requests for them."""
    options = {"LEASES": {"OPTIONS": {"database": empty_place}}}
    settings.IDGEN = {
        **idgen_on(empty_place),
        "GENERATORS": {"default": options, "second": options},
        "REST": {"make_tags": True},
    }
    return empty_place


def taken(step: int, path: str = "shop/orders") -> range:
    """The ids that a CosId client has of a range of ``step``."""
    answer = Client().patch(f"/open/cosid/segments/{path}?step={step}")
    assert answer.status_code == 200, answer.content
    last = int(answer.content)
    return range(last - step + 1, last + 1)


def test_a_range_is_exactly_as_long_as_asked(tags_of: str) -> None:
    """Below the row's step none of it is lost, and none of the longest, ``max_segment``."""
    url = "/open/cosid/segments/distributor/shop/orders?offset=0&step=1000"
    assert Client().post(url).content == b"0"
    ranges = [taken(step) for step in (10, 1, 1_000_000, 999, 10)]
    assert ranges[0].start == 1
    for before, after in itertools.pairwise(ranges):
        assert after.start == before.stop


def test_the_tags_of_ids_and_of_segments_are_one_counter(tags_of: str) -> None:
    """``<namespace>.<name>``, of the mount's namespace: no id comes twice (hazard 79)."""

    def one_by_one(path: str) -> list[int]:
        answers = [Client().get(f"/open/{path}") for _ in range(30)]
        return [int(answer.content) for answer in answers]

    for mount, space in (("cosid", "cosid"), ("warehouse", "stock")):
        ids = [*taken(50, f"{space}/orders"), *one_by_one(f"{mount}/ids/orders")]
        ids += [*taken(50, f"{space}/orders"), *segments[f"{space}.orders"].next_ids(5)]
        ids += one_by_one(f"{mount}/ids/as-string/orders")
        assert len(set(ids)) == len(ids) == 165
        # A dot in either part makes no other name, as in CosId.
        ids = [*taken(50, f"{space}/a.b"), *one_by_one(f"{mount}/ids/a.b")]
        ids += taken(50, f"{space}.a/b")
        assert len(set(ids)) == len(ids) == 130


def test_bad_steps_and_offsets_are_named(tag: str) -> None:
    """400, and nothing is taken or made."""
    LeafAlloc.objects.create(biz_tag="shop.orders")
    many = "step=" + "9" * 30
    for query in ("", "step=0", "step=-1", "step=x", "step=1000001", many, "step=1.5"):
        for method, url in (("patch", "segments"), ("post", "segments/distributor")):
            answer = getattr(Client(), method)(f"/open/cosid/{url}/shop/orders?{query}&offset=0")
            assert (answer.status_code, answer.json()["code"]) == (400, "400"), query
            assert "step" in answer.json()["msg"]
    for offset in ("-1", "x", str(2**63 - 1), "9" * 30):
        url = f"/open/cosid/segments/distributor/shop/new?offset={offset}&step=10"
        answer = Client().post(url)
        assert answer.status_code == 400, offset
        assert "offset" in answer.json()["msg"]
    assert marks() == {TAG: 1, "shop.orders": 1}


def test_the_end_of_the_ids_is_an_error(shards: list[str], settings: Any) -> None:
    """A range that is not whole is not given: the client would take ids that aren't its own."""
    settings.IDGEN = served_by(shards[:1])
    segments["shop.orders"].next_id()
    LeafAlloc.objects.using(shards[0]).update(max_id=2**63 - 5)
    answer = Client().patch("/open/cosid/segments/shop/orders?step=100")
    assert (answer.status_code, set(answer.json())) == (409, {"code", "msg", "errors"})
    maps.reset()  # before the databases go


def served_by(databases: list[str]) -> dict[str, Any]:
    return {
        "GENERATORS": {"default": {}, "second": {}},
        "SEGMENTS": {
            "SOURCE": {
                "BACKEND": "django_idgen.contrib.sharding.ShardedSource",
                "OPTIONS": {"databases": databases},
            },
            "OPTIONS": {"timeout": 30},
        },
    }


def test_a_tag_of_several_databases_has_no_ranges(
    shards: list[str],
    settings: Any,
) -> None:
    """A client would take the ids between, which are another database's."""
    settings.IDGEN = served_by(shards[:2])
    segments["shop.orders"].next_id()
    answer = Client().patch("/open/cosid/segments/shop/orders?step=10")
    assert (answer.status_code, answer.json()["code"]) == (503, "503")
    maps.reset()  # before the databases go


# --- owners ----------------------------------------------------------------------------


def of_client(name: str) -> Client:
    """A program with a new token of the client ``name``."""
    secret = make_token(name, leases=["default"])[1]
    return Client(headers={"Authorization": f"Bearer {secret}"})


def asked(client: Client, method: str, prefix: str = "/cosid") -> Any:
    """What ``client`` is answered for the one instance here: its machine id, or why not."""
    said = getattr(client, method)(f"{prefix}/machines/shop?{MACHINE}").json()
    return said["machineId"] if "machineId" in said else said["code"]


def test_an_instance_is_its_clients_alone(db: None) -> None:
    """No other token gives it back, keeps it or gets it; a new secret of the client does."""
    first, other = of_client("a"), of_client("b")
    machine = asked(first, "post")
    assert asked(other, "delete") == "M-02"
    assert asked(other, "patch") == "M-02"
    assert asked(other, "post") != machine
    assert asked(Client(), "post", "/open/cosid") != machine
    assert asked(Client(), "delete", "/open/cosid") != machine
    assert asked(of_client('a" "shop'), "post") != machine
    again = of_client("a")
    assert asked(first, "patch") == asked(again, "patch") == asked(again, "post") == machine
    assert asked(again, "delete") == machine
