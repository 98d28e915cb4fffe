"""``pipelined()``: rows that don't wait for each other's answers, and lose nothing by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InternalError,
    OperationalError,
    connections,
    transaction,
)
from django.db.models import F
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_idgen.contrib.pipelines import pipelined
from tests.app.models import Car, Document, Folder, Invoice, Receipt, Vehicle
from tests.places import place, savepoint_create

__all__ = ["place"]


@pytest.fixture
def shop(place: str) -> str:
    """A database of each kind, with some more tables."""
    with connections[place].schema_editor() as editor:
        for model in (Document, Receipt, Vehicle, Car):
            editor.create_model(model)
    return place


@pytest.fixture
def pipe(postgres: str) -> Iterator[str]:
    """A database with pipelines."""
    from tests import places

    with places.using(postgres):
        with connections[postgres].schema_editor() as editor:
            editor.create_model(Document)
        yield postgres


def folder(alias: str, **values: Any) -> Folder:
    return Folder.objects.using(alias).create(**values)


def names(alias: str) -> list[str]:
    return sorted(Folder.objects.using(alias).values_list("name", flat=True))


class Surprise(Exception):
    pass


@contextmanager
def fails(
    block: AbstractContextManager[Any], error: type[BaseException], match: str | None = None
) -> Iterator[None]:
    """``block`` is left by ``error``."""
    with pytest.raises(error, match=match), block:
        yield


# --- what it is for -----------------------------------------------------------


def test_a_row_does_not_wait_for_the_one_before_it(pipe: str) -> None:
    """While the server can't answer the first row yet, the next ones are sent already."""
    held, told = threading.Event(), threading.Event()
    sent: list[bool] = []

    def rival() -> None:
        # A key that is not committed yet: whoever inserts it as well has to wait.
        with closing(connections.create_connection(pipe)) as other:
            other.set_autocommit(False)
            with other.cursor() as cursor:
                cursor.execute("INSERT INTO app_folder (id, name) VALUES (7, 'theirs')")
            held.set()
            sent.append(told.wait(20))
            other.rollback()

    thread = threading.Thread(target=rival)
    thread.start()
    try:
        assert held.wait(30)
        with pipelined(pipe):
            first = folder(pipe, pk=7, name="ours")
            Document.objects.using(pipe).create(folder=first, title="one")
            Document.objects.using(pipe).create(folder=first, title="two")
            told.set()
    finally:
        told.set()
        thread.join()
    assert sent == [True]
    assert names(pipe) == ["ours"]
    assert Document.objects.using(pipe).filter(folder=7).count() == 2


def test_the_connection_is_as_ever_between_inserts_and_afterwards(pipe: str) -> None:
    """Pipeline mode lasts for a run of inserts, so that all else finds nothing unusual."""
    from psycopg.pq import PipelineStatus

    connection = connections[pipe]
    before = {**vars(connection)}

    def status() -> int:
        return int(connection.connection.pgconn.pipeline_status)

    with pipelined(pipe), CaptureQueriesContext(connection) as queries:  # as DEBUG has them
        assert status() == PipelineStatus.OFF
        folder(pipe)
        assert status() == PipelineStatus.ON
        assert [query["sql"].split()[0] for query in queries.captured_queries] == ["INSERT"]
        assert Folder.objects.using(pipe).count() == 1
        assert status() == PipelineStatus.OFF
        folder(pipe)
    assert status() == PipelineStatus.OFF
    assert not connection.execute_wrappers
    assert vars(connection).keys() == before.keys()


def test_thousands_of_rows_go_through(shop: str) -> None:
    """A pipeline longer than any buffer does not get stuck, and keeps every row."""
    with pipelined(shop):
        for number in range(3000):
            folder(shop, name=f"{number:04}")
    assert names(shop) == [f"{number:04}" for number in range(3000)]


# --- all else works as in atomic() --------------------------------------------


def test_queries_see_the_rows_before_them(shop: str) -> None:
    """SELECT, UPDATE and DELETE wait for the rows, and count what they did."""
    with pipelined(shop):
        one, two = folder(shop, name="one"), folder(shop, name="two")
        assert names(shop) == ["one", "two"]
        one.name = "first"
        one.save()
        two.name = "second"
        two.save(update_fields=["name"])
        folder(shop, name="three")
        assert Folder.objects.using(shop).update(name=F("name")) == 3
        folder(shop, name="four")
        assert Folder.objects.using(shop).filter(name="three")._raw_delete(shop) == 1
    assert names(shop) == ["first", "four", "second"]


def test_keys_of_the_database_come_back(shop: str) -> None:
    """A row whose key the database makes has it, among others whose keys are ours."""
    with pipelined(shop):
        folder(shop)
        first = Receipt.objects.using(shop).create(note="a")
        folder(shop)
        second = Receipt.objects.using(shop).create(note="b")
    assert first.pk
    assert second.pk == first.pk + 1
    assert Receipt.objects.using(shop).get(pk=second.pk).note == "b"


def test_bulk_rows_and_two_tables_rows_go_along(shop: str) -> None:
    """bulk_create() and multi-table inheritance, one after the other."""
    with pipelined(shop):
        Folder.objects.using(shop).bulk_create(Folder(name=name) for name in "abc")
        car = Car.objects.using(shop).create(name="red", doors=2)
        Invoice.objects.using(shop).bulk_create(Invoice() for _ in range(50))
    assert names(shop) == ["a", "b", "c"]
    assert Car.objects.using(shop).get(pk=car.pk).doors == 2
    assert Invoice.objects.using(shop).count() == 50


def test_all_rows_can_be_iterated_over_while_others_are_made(shop: str) -> None:
    """iterator() in the block, with a row made for each that it yields."""
    Folder.objects.using(shop).bulk_create(Folder(name=str(number)) for number in range(200))
    with pipelined(shop):
        folder(shop, name="last")
        for found in Folder.objects.using(shop).iterator(chunk_size=10):
            Document.objects.using(shop).create(folder=found)
    assert Document.objects.using(shop).count() == 201


def test_it_may_be_a_decorator_and_lie_in_itself(shop: str) -> None:
    """Blocks in blocks are nested atomic() blocks: the inner one is undone by itself."""

    @pipelined(shop)
    def outer() -> None:
        folder(shop, name="outer")
        with suppress(Surprise), pipelined(shop):
            folder(shop, name="inner")
            raise Surprise
        folder(shop, name="after")
        with pipelined(shop):
            folder(shop, name="kept")

    outer()
    assert names(shop) == ["after", "kept", "outer"]


def test_it_may_be_a_decorator_without_parentheses(pipe: str) -> None:
    """A bare ``@pipelined`` runs the function on the default database, as ``@atomic`` does."""

    @pipelined
    def make(name: str) -> str:
        assert connections["default"].in_atomic_block
        return folder(pipe, name=name).name

    assert make("made") == "made"
    assert names(pipe) == ["made"]


def test_blocks_in_generators_may_end_in_any_order(pipe: str) -> None:
    """The one that began first ends first: all rows are kept, and the connection is as ever."""

    def block(name: str) -> Iterator[None]:
        with pipelined(pipe):
            folder(pipe, name=f"{name} begun")
            yield
            folder(pipe, name=f"{name} ended")

    connection = connections[pipe]
    before = {**vars(connection)}
    with transaction.atomic(pipe):
        one, two = block("one"), block("two")
        for step in (one, two, one, two):
            next(step, None)
    assert not connection.connection.pgconn.pipeline_status
    assert names(pipe) == ["one begun", "one ended", "two begun", "two ended"]
    assert not connection.execute_wrappers
    assert vars(connection).keys() == before.keys()


def test_savepoints_by_hand_undo_what_follows_them(shop: str) -> None:
    """A refused row is told of before its savepoint is left, which undoes it alone."""
    taken = folder(shop, name="before").pk
    with pipelined(shop):
        folder(shop, name="one")
        by_hand = savepoint_create(using=shop)
        with pytest.raises(IntegrityError):
            folder(shop, pk=taken, name="two")
        transaction.set_rollback(False, using=shop)
        transaction.savepoint_rollback(by_hand, using=shop)
        transaction.savepoint_commit(by_hand, using=shop)
        folder(shop, name="three")
    assert names(shop) == ["before", "one", "three"]


def test_whoever_looks_at_an_insert_gets_its_answer(pipe: str) -> None:
    """rowcount, and rows of an INSERT that brings some, on the cursor that sent it."""
    insert = "INSERT INTO app_folder (id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING"
    with pipelined(pipe), connections[pipe].cursor() as cursor:
        cursor.execute(insert, [1, "one"])
        assert cursor.rowcount == 1
        cursor.execute(insert, [1, "two"])
        assert cursor.rowcount == 0
        cursor.execute(f"{insert} returning name as found", [3, "three"])
        assert [column.name for column in cursor.description] == ["found"]
        cursor.execute(f"{insert} returning name", [4, "four"])
        assert list(cursor) == [("four",)]
    with connections[pipe].cursor() as cursor, pipelined(pipe):
        cursor.execute(insert, [1, "five"])
        assert cursor.rowcount == 0
    with pipelined(pipe), connections[pipe].cursor() as cursor, pipelined(pipe):
        cursor.execute(insert, [1, "six"])
        assert cursor.rowcount == 0
    for look in (list, lambda cursor: cursor.fetchone()):
        with (
            fails(pipelined(pipe), IntegrityError),
            connections[pipe].cursor() as cursor,
            suppress(IntegrityError),
        ):
            cursor.execute("INSERT INTO app_folder (id, name) VALUES (1, 'six') returning name")
            look(cursor)
    assert names(pipe) == ["four", "one", "three"]


@pytest.mark.parametrize("how", ["copy", "stream", "two in one"])
def test_what_has_no_pipelined_form_goes_as_ever(pipe: str, how: str) -> None:
    """COPY, psycopg's stream() and several statements in one, after a row."""
    with pipelined(pipe):
        folder(pipe, name="one")
        with connections[pipe].cursor() as cursor:
            if how == "copy":
                with cursor.copy("COPY app_folder (id, name) FROM STDIN") as rows:
                    rows.write_row((2, "two"))
            elif how == "stream":
                assert list(cursor.stream("SELECT name FROM app_folder")) == [("one",)]
            else:
                insert = "INSERT INTO app_folder (id, name) VALUES ({0}, {0})"
                cursor.execute("; ".join(map(insert.format, (2, 3))))
        folder(pipe, name="more")
    assert {"one", "more"} <= set(names(pipe))
    assert len(names(pipe)) == {"copy": 3, "two in one": 4}.get(how, 2)


def test_what_wraps_statements_may_send_its_own(shop: str) -> None:
    """execute_wrapper() around and within the block, with a query for each row."""

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT"):
            Folder.objects.using(shop).count()
        return execute(sql, params, many, context)

    with connections[shop].execute_wrapper(wrapper), pipelined(shop):
        folder(shop, name="one")
        folder(shop, name="two")
    with pipelined(shop), connections[shop].execute_wrapper(wrapper):
        folder(shop, name="three")
        folder(shop, name="four")
    assert names(shop) == ["four", "one", "three", "two"]


def test_its_arguments_are_those_of_atomic(shop: str) -> None:
    """durable refuses to be nested; without a savepoint an error undoes the outer block."""
    with transaction.atomic(shop), pytest.raises(RuntimeError, match="durable"):
        pipelined(shop, durable=True).__enter__()
    with transaction.atomic(shop):
        with suppress(Surprise), pipelined(shop, savepoint=False):
            raise Surprise
        with pytest.raises(TransactionManagementError):
            folder(shop)
    with pipelined(shop, durable=True):
        folder(shop, name="kept")
    assert names(shop) == ["kept"]


def test_what_is_to_follow_the_commit_follows_it(shop: str) -> None:
    """on_commit() runs once the rows are there for others, and not if they are refused."""
    ran = []
    with pipelined(shop):
        made = folder(shop)
        transaction.on_commit(lambda: ran.append("kept"), using=shop)
        folder(shop)
    with fails(pipelined(shop), IntegrityError):
        transaction.on_commit(lambda: ran.append("lost"), using=shop)
        folder(shop, pk=made.pk)
    assert ran == ["kept"]


# --- rows that are refused ----------------------------------------------------


def test_a_refused_row_undoes_the_block(shop: str) -> None:
    """The error is Django's, by the end of the block; no row of the block is kept."""
    taken = folder(shop, name="before").pk
    with fails(pipelined(shop), IntegrityError):
        folder(shop, name="one")
        folder(shop, pk=taken, name="two")
        for _ in range(100):
            folder(shop, name="more")
    assert names(shop) == ["before"]
    folder(shop, name="after")
    assert names(shop) == ["after", "before"]


def test_what_was_refused_first_is_told(pipe: str) -> None:
    """Of several refused rows, and what the server aborted after them, the first one counts."""
    taken = folder(pipe, name="before").pk
    with fails(pipelined(pipe), IntegrityError, rf"\(id\)=\({taken}\)"):
        folder(pipe, pk=taken)
        folder(pipe, name="x" * 100)  # too long: another error
        for _ in range(100):
            folder(pipe)
    with fails(pipelined(pipe), IntegrityError, rf"\(id\)=\({taken}\)"):
        folder(pipe, pk=taken)
        Folder.objects.using(pipe).count()
    assert names(pipe) == ["before"]


@pytest.mark.parametrize("then", ["nothing", "a row", "a query", "a block"])
def test_an_error_that_is_caught_does_not_lose_rows_silently(pipe: str, then: str) -> None:
    """Where atomic() would drop the rows and say nothing, the end of the block raises."""
    taken = folder(pipe, name="before").pk
    with fails(pipelined(pipe), IntegrityError):
        folder(pipe, name="one")
        with suppress(IntegrityError):
            folder(pipe, pk=taken, name="two")
            Folder.objects.using(pipe).count()
        with suppress(Error):
            if then == "a row":
                folder(pipe, name="three")
            if then == "a query":
                Folder.objects.using(pipe).count()
            if then == "a block":
                with transaction.atomic(pipe):
                    folder(pipe, name="four")
    assert names(pipe) == ["before"]


def test_a_nested_block_undoes_its_own_rows_alone(shop: str) -> None:
    """atomic() around a row that is refused: its error comes there, and the others are kept."""
    taken = folder(shop, name="before").pk
    with pipelined(shop):
        folder(shop, name="one")
        with fails(transaction.atomic(shop), IntegrityError):
            folder(shop, name="two")
            folder(shop, pk=taken, name="three")
        folder(shop, name="four")
        with fails(transaction.atomic(shop), IntegrityError):
            folder(shop, pk=taken, name="five")
            Folder.objects.using(shop).count()
        found, made = Folder.objects.using(shop).get_or_create(pk=taken, defaults={"name": "six"})
        assert (found.name, made) == ("before", False)
    assert names(shop) == ["before", "four", "one"]


def test_a_nested_block_is_not_blamed_for_rows_before_it(pipe: str) -> None:
    """A row refused before a nested atomic() fails the block even if that error is caught."""
    taken = folder(pipe, name="before").pk
    with fails(pipelined(pipe), IntegrityError):
        folder(pipe, pk=taken, name="one")
        with pytest.raises(IntegrityError) as refused, transaction.atomic(pipe):
            folder(pipe, name="two")
        with pytest.raises(TransactionManagementError) as told:
            folder(pipe, name="three")
        assert told.value.__cause__ is refused.value
    assert names(pipe) == ["before"]


def test_a_value_that_never_left_is_told_at_once(pipe: str) -> None:
    """What psycopg itself refuses is raised by the very row, and undoes the block."""
    with fails(pipelined(pipe), DataError, "NUL"):
        folder(pipe, name="one")
        folder(pipe, name="a\0b")
    assert names(pipe) == []


def test_an_error_that_others_have_taken_is_told(pipe: str) -> None:
    """psycopg raises it once: in what uses its connection past Django, and drops it."""
    taken = folder(pipe, name="before").pk
    with fails(pipelined(pipe), DatabaseError):
        folder(pipe, name="one")
        folder(pipe, pk=taken, name="two")
        with connections[pipe].connection.cursor() as cursor:
            with suppress(Exception):
                cursor.execute("SELECT 1")
            with suppress(Exception):
                cursor.fetchall()
    assert names(pipe) == ["before"]


def test_a_wait_that_was_interrupted_is_told(pipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, caught within the block, while a refused row's answer was waited for."""
    import psycopg

    def sync(_: psycopg.Pipeline) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    taken = folder(pipe, name="before").pk
    with fails(pipelined(pipe), KeyboardInterrupt):
        folder(pipe, name="one")
        folder(pipe, pk=taken, name="two")
        monkeypatch.setattr(psycopg.Pipeline, "sync", sync)
        with suppress(KeyboardInterrupt):
            Folder.objects.using(pipe).count()
    assert names(pipe) == ["before"]


@pytest.mark.parametrize("where", ["__enter__", "__exit__"])
def test_a_connection_stuck_in_a_pipeline_is_given_up(
    pipe: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Ctrl-C while psycopg enters or leaves: caught, no row is kept; the next block works."""
    import psycopg

    as_ever = getattr(psycopg.Pipeline, where)

    def interrupted(pipeline: psycopg.Pipeline, *exc: Any) -> None:
        if where == "__enter__":
            as_ever(pipeline, *exc)
        raise KeyboardInterrupt

    with fails(pipelined(pipe), KeyboardInterrupt):
        Folder.objects.using(pipe).count()
        with monkeypatch.context() as patch:
            patch.setattr(psycopg.Pipeline, where, interrupted)
            with suppress(KeyboardInterrupt):
                folder(pipe, name="one")
                Folder.objects.using(pipe).count()
        with suppress(Error):
            folder(pipe, name="two")
    connections[pipe].close_if_unusable_or_obsolete()
    with pipelined(pipe):
        folder(pipe, name="three")
        assert Folder.objects.using(pipe).update(name="four") == 1
    assert not connections[pipe].connection.pgconn.pipeline_status
    assert names(pipe) == ["four"]


def test_an_exception_of_the_blocks_own_undoes_it(shop: str) -> None:
    """It comes out as it was raised, and no row is kept, refused ones among them or not."""
    taken = folder(shop, name="before").pk
    for pk in (None, taken):
        with fails(pipelined(shop), Surprise):
            with suppress(IntegrityError):  # at once, where there are no pipelines
                folder(shop, pk=pk, name="one")
            raise Surprise
    assert names(shop) == ["before"]


def test_a_server_that_hangs_up_is_an_error_and_the_next_block_works(pipe: str) -> None:
    """The backend is killed in the middle of a run: OperationalError, then a new connection."""
    with fails(pipelined(pipe), OperationalError):
        folder(pipe, name="one")
        backend = connections[pipe].connection.info.backend_pid
        with closing(connections.create_connection(pipe)) as other, other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [backend])
        folder(pipe, name="two")
    connections[pipe].close_if_unusable_or_obsolete()
    with pipelined(pipe):
        folder(pipe, name="three")
    assert names(pipe) == ["three"]


def test_without_pipelines_in_the_library_it_is_atomic(
    pipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old libpq: the same rows, one answer at a time."""
    import psycopg

    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: False)
    with pipelined(pipe):
        folder(pipe, name="one")
        assert not connections[pipe].execute_wrappers
    assert names(pipe) == ["one"]


# --- the same rows, whatever is done ------------------------------------------

Step = tuple[str, int]
STEPS = st.lists(
    st.recursive(
        st.tuples(st.sampled_from(["make", "count", "rename", "get_or_create", "bulk"]),
                  st.integers(1, 6)),
        lambda inner: st.tuples(
            st.sampled_from(
                ["caught", "caught flat", "raised", "savepoint undone", "by hand", "swallowed"]
            ),
            st.lists(inner, max_size=4),
        ),
        max_leaves=8,
    ),
    max_size=6,
)  # fmt: skip


class Program:
    """Steps on rows 1 to 6, some of which refuse each other; writes down nothing but rows."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def run(self, steps: list[Any]) -> None:
        for name, argument in steps:
            if isinstance(argument, list):
                self._block(name, argument)
            else:
                self._step(name, argument)

    def _step(self, name: str, pk: int) -> None:
        rows = Folder.objects.using(self.alias)
        if name == "make":
            rows.create(pk=pk, name="made")
        elif name == "bulk":
            rows.bulk_create([Folder(pk=pk, name="bulk"), Folder(pk=pk + 1, name="bulk")])
        elif name == "count":
            rows.count()
        elif name == "rename":
            rows.filter(pk=pk).update(name=f"renamed {pk}")
        else:
            rows.get_or_create(pk=pk, defaults={"name": "gotten"})

    def _block(self, name: str, steps: list[Any]) -> None:
        if name == "savepoint undone":
            with suppress(Surprise, IntegrityError), transaction.atomic(self.alias):
                self.run(steps)
                raise Surprise
        elif name == "by hand":
            by_hand = savepoint_create(using=self.alias)
            try:
                self.run(steps)
            except IntegrityError:
                transaction.set_rollback(False, using=self.alias)
                transaction.savepoint_rollback(by_hand, using=self.alias)
            else:
                transaction.savepoint_commit(by_hand, using=self.alias)
        elif name == "swallowed":
            with suppress(IntegrityError):
                self.run(steps)
        elif name == "raised":
            with transaction.atomic(self.alias):
                self.run(steps)
        else:
            with (
                suppress(IntegrityError),
                transaction.atomic(self.alias, savepoint=name == "caught"),
            ):
                self.run(steps)


def outcome(alias: str, block: Callable[[str], Any], steps: list[Any]) -> list[tuple[int, str]]:
    with connections[alias].cursor() as cursor:
        cursor.execute("DELETE FROM app_folder")
    folder(alias, pk=3, name="before")
    # The second: what Django 6.1 makes of a refused bulk_create() whose error somebody swallowed.
    with suppress(IntegrityError, InternalError, TransactionManagementError), block(alias):
        Program(alias).run(steps)
    return sorted(Folder.objects.using(alias).values_list("pk", "name"))


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_any_block_keeps_the_rows_that_atomic_keeps(pipe: str, steps: list[Any]) -> None:
    """Random nests of rows, refusals, queries and blocks leave the same table as atomic()."""
    assert outcome(pipe, pipelined, steps) == outcome(pipe, transaction.atomic, steps)
