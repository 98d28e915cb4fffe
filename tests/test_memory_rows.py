"""The rows of an in-memory SQLite database, as a user's own tests have it."""

from __future__ import annotations

import pytest

from django_idgen import handlers, segments
from django_idgen.connection import Place, place_of
from django_idgen.core.errors import SegmentExhausted
from django_idgen.core.segment import MAX_ID
from django_idgen.models import LeafAlloc
from django_idgen.stores import catch_up

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _in_memory() -> None:
    assert place_of("default") is Place.MEMORY
    handlers.reset()


def rows() -> dict[str, int]:
    return dict(LeafAlloc.objects.values_list("biz_tag", "max_id"))


def test_a_tag_that_is_used_up_has_a_row() -> None:
    """It says the end that its column can hold; whoever goes on from it gets no id twice."""
    LeafAlloc.objects.create(biz_tag="end", max_id=MAX_ID - 3, step=1000)
    taken = segments["end"].next_ids(3)
    assert taken == [MAX_ID - 3, MAX_ID - 2, MAX_ID - 1]
    catch_up("default")
    assert rows() == {"end": MAX_ID}
    for _ in range(2):
        with pytest.raises(SegmentExhausted):
            segments["end"].next_id()
        catch_up("default")
    handlers.reset()  # as another process, which knows the row alone
    with pytest.raises(SegmentExhausted):
        segments["end"].next_id()
    assert rows() == {"end": MAX_ID}
