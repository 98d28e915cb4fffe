"""``django_idgen.testing`` and the pytest plugin, as a project's tests use them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from textwrap import dedent

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from django_idgen import generators, next_id, segments
from django_idgen.core.errors import InvalidId, NoFreeWorker
from django_idgen.models import LeafAlloc
from django_idgen.settings.config import SettingsError
from django_idgen.testing import FixedIdsUsedUp, fixed_ids, no_registry, sequential_ids
from tests.app.models import Invoice, Order

ROOT = Path(__file__).parent.parent


# --- fixed and sequential -----------------------------------------------------


@pytest.mark.django_db
def test_fixed_ids_are_given_to_rows_in_order() -> None:
    """Rows get just the ids that were named; after the block ids come from where they did."""
    with fixed_ids(9, 7) as ids:
        assert [Order.objects.create().pk, Order.objects.create().pk] == [9, 7]
        assert ids.issued == [9, 7]
    assert next_id() > 9


def test_too_few_fixed_ids_are_an_error_that_says_so() -> None:
    """Asking for one more names the generator and how many there were."""
    with fixed_ids(1, 2), pytest.raises(FixedIdsUsedUp, match=r"2 .*'default'"):
        generators["default"].next_ids(3)


@pytest.mark.django_db
def test_a_tag_can_be_fixed_by_itself() -> None:
    """Only the named tag is replaced."""
    with fixed_ids(70, tag="app.invoice"), sequential_ids(5, tag="other"):
        assert Invoice.objects.create().pk == 70
        assert segments["other"].next_ids(2) == [5, 6]
        assert next_id() > 2**32


def test_a_test_case_begins_each_test_with_them() -> None:
    """All tests of a decorated class run, each with the same ids, in ``setUp`` already."""

    @fixed_ids(70, 71, tag="case")
    class Case(unittest.TestCase):
        def setUp(self) -> None:
            self.first = segments["case"].next_id()

        def test_one(self) -> None:
            assert (self.first, segments["case"].next_id()) == (70, 71)

        test_two = test_one

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert (result.testsRun, result.failures, result.errors) == (2, [], [])


def test_functions_and_coroutine_functions_run_inside() -> None:
    """A decorated function has the ids at each call; so has a coroutine, until it is done."""

    @sequential_ids(5)
    def count_up() -> list[int]:
        return generators["default"].next_ids(2)

    @sequential_ids(5)
    async def count_up_later() -> list[int]:
        await asyncio.sleep(0)
        return await generators["default"].anext_ids(2)

    async def take_of_a_tag() -> int:
        return await segments["tea"].anext_id()

    assert count_up() == count_up() == asyncio.run(count_up_later()) == [5, 6]
    with fixed_ids(7, tag="tea"):
        assert asyncio.run(take_of_a_tag()) == 7


def test_a_class_that_is_no_test_case_is_refused() -> None:
    """Its tests would run without the ids, so it is told to decorate the methods."""
    with pytest.raises(TypeError, match=r"fixed_ids\(\) can't decorate .*Plain.* methods"):

        @fixed_ids(7)
        class Plain:
            pass


@pytest.mark.parametrize("bad", [0, -1, 2**63, "7", None, True])
def test_values_that_are_no_ids_are_refused(bad: object) -> None:
    """A test can't go on with ids that production could never see."""
    with pytest.raises(InvalidId), fixed_ids(bad):  # type: ignore[arg-type]
        pass
    with pytest.raises(InvalidId), sequential_ids(bad):  # type: ignore[arg-type]
        pass


def test_an_unknown_generator_is_named() -> None:
    """Replacing an alias that the settings don't have is refused."""
    with pytest.raises(SettingsError, match="nowhere"), fixed_ids(1, generator="nowhere"):
        pass


def test_they_nest_and_are_undone_by_an_error() -> None:
    """The inner one wins; an exception brings the outer one back."""
    with sequential_ids(1):
        next_id()
        with pytest.raises(FixedIdsUsedUp), fixed_ids(50):
            generators["default"].next_ids(2)
        assert next_id() == 2


def test_other_threads_see_them_and_share_them() -> None:
    """Eight threads take each sequential id once."""
    taken: list[int] = []
    with sequential_ids():
        threads = [
            threading.Thread(target=lambda: taken.extend(next_id() for _ in range(50)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == list(range(1, 401))


def test_a_stand_in_has_the_layout_of_what_it_replaces() -> None:
    """Code that takes ids apart goes on working."""
    layout = generators["default"].layout  # type: ignore[attr-defined]
    with sequential_ids():
        assert generators["default"].layout == layout  # type: ignore[attr-defined]
        assert generators["default"].stats()
        generators["default"].close()


# --- no registry --------------------------------------------------------------


@pytest.mark.django_db(databases="__all__")
def test_no_registry_touches_no_database() -> None:
    """Ids of every kind come without a query and without a row; tags start at 1."""
    with CaptureQueriesContext(connection) as captured, no_registry():
        first, second = next_id(), next_id()
        assert 2**32 < first < second
        assert segments["quiet"].next_ids(2500) == list(range(1, 2501))
    assert list(captured) == []
    assert not LeafAlloc.objects.filter(pk="quiet").exists()


ONE_WORKER = {"NAMESPACE": "n", "LEASES": {"OPTIONS": {"workers": [0, 1]}}}


@override_settings(IDGEN={"GENERATORS": {"a": ONE_WORKER, "b": ONE_WORKER}})
def test_no_registry_keeps_aliases_of_a_namespace_apart() -> None:
    """Two aliases that share a namespace share its worker ids, too: one holds what there is."""
    with no_registry():
        next_id("a")
        with pytest.raises(NoFreeWorker):
            next_id("b")


@override_settings(
    IDGEN={
        "GENERATORS": {"default": {"LAYOUT": "js_safe", "LEASES": {"OPTIONS": {"window": 60}}}},
        "SEGMENTS": {"OPTIONS": {"default_step": 3}},
    }
)
def test_no_registry_keeps_layouts_and_steps() -> None:
    """Everything but the place of the marks is as the project configured it."""
    with no_registry():
        assert next_id() < 2**53
        assert segments["t"].next_ids(7) == [1, 2, 3, 4, 5, 6, 7]


# --- the plugin ---------------------------------------------------------------


def test_plugin_fixtures(
    idgen_sequential: object, idgen_fixed_ids: object, request: pytest.FixtureRequest
) -> None:
    """``idgen_sequential`` counts from 1; ``idgen_fixed_ids`` is called with ids and options."""
    assert next_id() == 1
    idgen_fixed_ids(8)  # type: ignore[operator]
    idgen_fixed_ids(4, tag="t")  # type: ignore[operator]
    assert (next_id(), segments["t"].next_id()) == (8, 4)


def test_fixtures_end_with_their_test() -> None:
    """The next test has ids of the real generator."""
    assert next_id() > 2**32


def test_the_plugin_loads_no_django(tmp_path: Path) -> None:
    """A project without Django settings runs its tests with our plugin loaded, and no Django."""
    (tmp_path / "test_plain.py").write_text(
        dedent(
            """
            import sys
            def test_plain():
                assert "django_idgen.pytest_plugin" in sys.modules
                assert not any(m == "django" or m.startswith("django.") for m in sys.modules)
            """
        )
    )
    plugins = ["-p", "django_idgen.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
