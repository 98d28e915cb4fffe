"""What the history says of ids that lie in the pool: that it got them, and when."""

from __future__ import annotations

from io import StringIO

from django.core.management import call_command

from django_idgen.core.lease import process_label
from django_idgen.models import SegmentHistory
from django_idgen.sources.history import who_issued
from tests.upkeep_tools import forget_redis, pool_on, source, upkeep_on

from .shop import OwnedSource, pool


def test_ids_fetched_for_the_pool_are_the_pools(server_alias: str, redis: str) -> None:
    """Of a new tag and of an old one. Who takes them leaves no row; who needs more does."""
    with upkeep_on(pool_on(redis, server_alias, history=True)):
        pooled, rows = source(), SegmentHistory.objects.using(server_alias)
        for wanted in (1000, 2000):
            pooled.refill("tea", wanted)
        assert [row.holder for row in rows.all()] == ["pool", "pool"]
        assert pooled.fetch("tea").start == 1
        said = StringIO()
        call_command("idgen_decode", "7", "--tag=tea", stdout=said)
        assert (
            said.getvalue().count("handed to the pool at ") == said.getvalue().count("handed") == 1
        )
        assert "Which process took it from the pool is not recorded." in said.getvalue()
        as_json = StringIO()
        call_command("idgen_decode", "7", "--tag=tea", "--json", stdout=as_json)
        assert as_json.getvalue().count('"pool"') == 1
        pooled.fetch("tea")
        last = pooled.fetch("tea")
        assert [row.holder for row in who_issued("tea", last.start, database=server_alias)] == [
            process_label()
        ]
        assert rows.count() == 3
        call_command("idgen_decode", f"{last.start}", "--tag=tea", stdout=said)
        assert "gave it back to the pool, who took it from there is not recorded" in said.getvalue()
        forget_redis(redis, server_alias)


def test_notes_of_an_earlier_version_do_no_harm(redis: str) -> None:
    """A version before noted in Redis who took what; such keys expire."""
    made = pool(redis, OwnedSource())
    key = f"django_idgen:poolhistory1:{{{made.source.owner('t')}}}"
    notes = {"life": "1.2", "next": "1", "1": '["t","1","11","1","1","2","web-1"]'}
    made._own.client.hset(key, mapping=notes)
    assert made.refill("t", 50) == 50
    segment = made.fetch("t")
    made.give_back("t", [segment.ids()[1:]])
    assert made.stocks(["t"])["t"].ids == 49
    made.clear(["t"])
    assert made._own.client.hgetall(key) == {
        name.encode(): value.encode() for name, value in notes.items()
    }
    made._own.client.delete(key)
    made.close()
