"""Segments lent out of a pool, cut and given back, while the service takes ids of its own."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from django.db import connections
from django.test import override_settings

from django_idgen import segments
from django_idgen.contrib.old_servers.cosid import Distributor
from django_idgen.contrib.old_servers.mounting import Tags
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags import edits as tag_edits
from tests.remote.service import one_token
from tests.server_tools import at_once
from tests.sources.pool.test_project import idgen_on

from .test_segments import Api

TAG = "lent"
MOST = 7
"""Ids that are lent at once: a third of a step, so that the rest goes to the pool."""
TURNS = 25


def test_what_is_cut_off_and_given_back_is_given_out_once(postgres: str, redis: str) -> None:
    """To whomever: local callers, clients with floors, CosId's, and who clears and fills."""
    idgen = {**idgen_on(redis, postgres), "REST": {"max_segment": MOST, "max_skip": 200}}
    with override_settings(IDGEN=idgen, ROOT_URLCONF="tests.remote.urls"), one_token():
        pool: Any = segments.allocator().source
        tag_edits.make_tag(TAG, step=20)
        found = at_once(4, lambda who: turns(who, postgres))
        ids = Counter(each for some in found for each in some)
        pool.clear([TAG])
        segments.close()
    assert len(ids) > 4 * TURNS
    assert max(ids.values()) == 1


def turns(who: int, alias: str) -> list[int]:
    chance = random.Random(who)
    api = Api(alias)
    cosid = Distributor(Tags(["*"], None))
    found: list[int] = []
    try:
        for _ in range(TURNS):
            act = chance.randrange(6)
            if act == 0:
                found += segments[TAG].next_ids(chance.randrange(1, 30))
            elif act in (1, 2):
                found += lent(api, max(found, default=0) + chance.choice([0, 1, 150]))
            elif act == 3:
                step = chance.randrange(1, MOST)
                last = cosid.take(None, TAG, step)
                found += range(last - step + 1, last + 1)
            elif act == 4:
                tag_edits.clear_here(TAG)
            else:
                tag_edits.fill_pool(LeafAlloc.objects.using(alias).get(pk=TAG))
    finally:
        connections.close_all()
    return found


def lent(api: Api, floor: int) -> range:
    answer = api.post(TAG, {"floor": floor})
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
