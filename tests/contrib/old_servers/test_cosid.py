"""Answers as those of CosId's proxy server."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.test import Client

from django_idgen import segments
from django_idgen.models import LeafAlloc
from django_idgen.process import maps
from django_idgen.rest.tokens import make_token
from tests.places import empty_place as empty_place
from tests.places import idgen_on

from .conftest import asking
from .old_clients import CosIdMachine

MACHINE = "machineBit=10&instanceId=10.0.0.1:80&stable=false&safeGuardDuration=PT5M"


# --- machine ids -----------------------------------------------------------------------


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


# --- segments --------------------------------------------------------------------------


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
