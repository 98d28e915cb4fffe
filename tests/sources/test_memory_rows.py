"""The rows of an in-memory SQLite database, as a user's own tests have it."""

from __future__ import annotations

import unittest

import pytest
from django.db import transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from django_idgen import segments
from django_idgen.core.errors import SegmentExhausted
from django_idgen.core.segment import MAX_ID
from django_idgen.db.connection import Place, place_of
from django_idgen.models import LeafAlloc
from django_idgen.process import maps

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _in_memory(no_tags: None) -> None:
    assert place_of("default") is Place.MEMORY


def rows() -> dict[str, int]:
    return dict(LeafAlloc.objects.values_list("biz_tag", "max_id"))


def test_a_tag_that_is_used_up_has_a_row() -> None:
    """It says the end that its column can hold; whoever goes on from it gets no id twice."""
    LeafAlloc.objects.create(biz_tag="end", max_id=MAX_ID - 3, step=1000)
    taken = segments["end"].next_ids(3)
    assert taken == [MAX_ID - 3, MAX_ID - 2, MAX_ID - 1]
    assert rows() == {"end": MAX_ID}
    for _ in range(2):
        with pytest.raises(SegmentExhausted):
            segments["end"].next_id()
    maps.reset()  # as another process, which knows the row alone
    with pytest.raises(SegmentExhausted):
        segments["end"].next_id()
    assert rows() == {"end": MAX_ID}


# --- rows of tags that other tests used ------------------------------------------------


class Users:
    """Tests of a user's project, run one after the other as Django's runner does it."""

    def __init__(self) -> None:
        self.seen: list[set[str]] = []

    def run(self, *cases: type[SimpleTestCase]) -> list[set[str]]:
        for case in cases:
            case.users = self  # type: ignore[attr-defined]
            result = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
            assert result.testsRun == 1
            assert result.wasSuccessful(), result.errors + result.failures
        return self.seen


@pytest.fixture
def users() -> Users:
    return Users()


class TakesInATransaction(TestCase):
    __test__ = False  # for pytest: it is run by a test

    def test(self) -> None:
        segments["first"].next_id()


class TakesOutside(TransactionTestCase):
    __test__ = False  # for pytest: it is run by a test

    def test(self) -> None:
        segments["second"].next_id()


class Asks(TransactionTestCase):
    __test__ = False  # for pytest: it is run by a test

    def test(self) -> None:
        self.users.seen.append(set(rows()))  # type: ignore[attr-defined]


class TakesAndAsks(TransactionTestCase):
    __test__ = False  # for pytest: it is run by a test

    def test(self) -> None:
        with transaction.atomic():
            segments["mine"].next_id()
        self.users.seen.append(set(rows()))  # type: ignore[attr-defined]


def test_tags_of_another_test_s_transaction_have_no_rows(users: Users) -> None:
    """What it wrote is rolled back at its end."""
    assert users.run(TakesInATransaction, Asks) == [set()]
    assert rows() == {}


def test_tags_of_a_test_without_one_have_them_when_it_ends(users: Users) -> None:
    """As on a server: no flush takes them away, or ids could come again. None comes later."""
    users.run(TakesOutside)
    assert set(rows()) == {"second"}
    assert users.run(Asks) == [{"second"}]


def test_a_test_s_own_tags_have_their_rows(users: Users) -> None:
    """In the transaction that took the ids, and after it."""
    assert users.run(TakesInATransaction, TakesAndAsks) == [{"mine"}]


def test_no_id_comes_again_after_a_test(users: Users) -> None:
    """Whether the test's rows were rolled back or not."""
    first = [segments[tag].next_id() for tag in ("first", "second")]
    users.run(TakesInATransaction, TakesOutside)
    assert [segments[tag].next_id() for tag in ("first", "second")] == [two + 2 for two in first]
    maps.segments.close()
    for tag, before in zip(("first", "second"), first, strict=True):
        assert segments[tag].next_id() > before + 2


def test_what_migrations_took_is_handed_on() -> None:
    """A runner copies the database for other processes once they are done."""
    with transaction.atomic():
        first = segments["seeded"].next_id()
    assert rows()["seeded"] > first
