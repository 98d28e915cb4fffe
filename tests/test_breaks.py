"""The breaks fit the code, and the command that tries them tells a find from a crash."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.breaks.__main__ import chosen_of, try_all
from tests.breaks.catalogue import BREAKS
from tests.breaks.definition import Break, Unported
from tests.breaks.running import Copy
from tests.tiers import is_long

ROOT = Path(__file__).parents[1]
LEAST = 40


def test_each_break_fits_the_code() -> None:
    """Its old text is there exactly once, and what is Python with the break is still Python."""
    for each in BREAKS:
        text = each.broken(ROOT)
        assert each.old != each.new, each.name
        if each.file.endswith(".py"):
            compile(text, each.file, "exec")


def test_each_break_has_a_name_of_its_own() -> None:
    """So that one can be chosen, and its line in the summary is about it alone."""
    assert len(BREAKS) >= LEAST
    names = Counter(each.name for each in BREAKS)
    assert [name for name, count in names.items() if count > 1] == []
    assert all(each.rule and each.tests for each in BREAKS)


def test_each_test_that_is_named_is_there() -> None:
    """A test that was renamed is noticed here, before a long run comes to it."""
    suites = [
        *ROOT.glob("django_idgen/testing/contracts/*.py"),
        *ROOT.glob("tests/contracts/*_contract.py"),
    ]
    contracts = "".join(path.read_text() for path in suites)
    for test in sorted({test for each in BREAKS for test in each.tests}):
        path, *names = test.partition("[")[0].split("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        for name in names:
            # A class may have it from the contract that it keeps.
            known = text + contracts if len(names) > 1 else text
            assert re.search(rf"^ *(?:def|class) {name}\b|^{name}\b", known, re.M), test


def test_each_break_is_found_on_push(request: pytest.FixtureRequest) -> None:
    """One of its tests runs there, or the break says why none does."""
    items = request.session.items
    files = {test.partition("::")[0] for each in BREAKS for test in each.tests}
    if not files <= {item.nodeid.partition("::")[0] for item in items}:
        pytest.skip("This run does not have all the tests that breaks name.")
    names = set()
    for item in items:
        if not is_long(item):
            path, *parts = item.nodeid.partition("[")[0].split("::")
            names |= {"::".join([path, *parts[:count]]) for count in range(len(parts) + 1)}
            names.add(item.nodeid)
    late = {each.name for each in BREAKS if names.isdisjoint(each.tests)}
    assert late == {each.name for each in BREAKS if each.late}


# --- the command, on a project of one line ------------------------------------------

SUMS = "def add(a, b):\n    return a + b\n"
TESTS = """
import os
import subprocess
import sys
from django_idgen.sums import add

def test_sum():
    assert add(2, 3) == 5

def test_nothing():
    pass

def test_red():
    assert add(2, 3) == 6

def test_in_a_child():
    code = "from django_idgen.sums import add; raise SystemExit(add(2, 3))"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ}).returncode == 5
"""


def broken(name: str, new: str, *tests: str, old: str = "a + b") -> Break:
    wanted = tuple(f"tests/test_sums.py::{test}" for test in tests)
    return Break(name, "I1", "django_idgen/sums.py", old, new, wanted)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    project = tmp_path_factory.mktemp("project")
    for path, text in (
        ("django_idgen/__init__.py", ""),
        ("django_idgen/sums.py", SUMS),
        ("tests/test_sums.py", TESTS),
        ("pytest.ini", "[pytest]\n"),
        (".venv/left.py", "out"),
    ):
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        # The plugins that are installed know of the real package.
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return Copy(project, tmp_path_factory.mktemp("copy") / "project")


@pytest.mark.long
def test_a_break_that_a_test_finds_is_told(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with the test that found it, in the same process or in a child; then the count."""
    found = [broken("minus", "a - b", "test_sum"), broken("product", "a * b", "test_in_a_child")]
    assert try_all(copy, found, stop_early=False) == 0
    said = capsys.readouterr().out
    assert re.search(r"1/2 found  minus \(I1\): test_sum", said)
    assert re.search(r"2/2 found  product \(I1\): test_in_a_child", said)
    assert "all 2 breaks found" in said
    assert (copy.root / "django_idgen/sums.py").read_text() == SUMS
    assert not (copy.root / ".venv").exists()


@pytest.mark.long
def test_a_break_that_nothing_finds_is_told(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is it found by code that doesn't run: that fails whatever it breaks."""
    missed = [
        broken("unseen", "a - b", "test_nothing"),
        broken("no such name", "a + c", "test_sum"),
        broken("no Python", "a +", "test_sum"),
    ]
    assert try_all(copy, missed, stop_early=False) == 1
    said = capsys.readouterr().out
    assert "MISSED unseen (I1): all its tests stayed green" in said
    assert "MISSED no such name (I1): the broken code doesn't run" in said
    assert "MISSED no Python (I1): the broken code doesn't run" in said
    assert "3 of 3 breaks not found" in said
    assert try_all(copy, missed, stop_early=True) == 1
    assert "1 of 3 breaks not found" in capsys.readouterr().out


@pytest.mark.long
def test_a_test_that_is_red_anyway_proves_nothing(
    copy: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    """No break is tried then; nor where a test is not there."""
    for test in ("test_red", "test_that_was_renamed"):
        assert try_all(copy, [broken("any", "a - b", "test_sum", test)], stop_early=False) == 1
        said = capsys.readouterr().out
        assert f"::{test}" in said or f".{test}" in said
        assert "found" not in said.splitlines()[-1]


def test_a_break_whose_line_is_gone_has_to_be_ported(copy: Copy) -> None:
    """It says where and which, before anything is run."""
    with pytest.raises(Unported, match=r"'gone' occurs 0 times in django_idgen/sums.py"):
        try_all(copy, [broken("gone", "x", "test_sum", old="a / b")], stop_early=False)
    with pytest.raises(Unported, match="occurs 3 times"):
        try_all(copy, [broken("vague", "x", "test_sum", old="a")], stop_early=False)


def test_no_other_package_is_tested(copy: Copy) -> None:
    """Without ours beside it, Python would import the one that is installed: it may not."""

    def imported() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "import sys; sys.path.pop(0); import django_idgen"],
            cwd=copy.root / "tests",
            env={**copy.environment, "PYTHONPATH": f"{copy.root}:{ROOT}"},
            capture_output=True,
            text=True,
            check=False,
        )

    done = imported()
    assert done.returncode == 0, done.stderr
    moved = (copy.root / "django_idgen").rename(copy.root / "elsewhere")
    try:
        assert "would import" in imported().stderr
    finally:
        moved.rename(copy.root / "django_idgen")


def test_breaks_are_chosen_by_their_words() -> None:
    """A part of the name, the rule or the file; several widen the choice."""
    some = [broken("minus", "a - b"), broken("product", "a * b")]
    assert chosen_of(some, ["PROD"]) == some[1:]
    assert chosen_of(some, ["prod", "min"]) == some
    assert chosen_of(some, []) == chosen_of(some, ["sums.py"]) == some
    assert chosen_of(some, ["x/y"]) == []
