"""Projects with few packages: with Django alone, without its apps, without Django.

The packages that a test does without are not on its Python's path, nor on that of its children.
``tox -e bare,core,noadmin,simpleadmin`` runs the same commands in real environments.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECTS = ROOT / "tests" / "projects"
DJANGO = ("django",)
CORE = ("freezegun", "gevent", "hypothesis", "pytest", "pytest-timeout", "time-machine")
# What Python runs first in a process: it takes the installed packages from its path.
HIDE = """
import sys
sys.path[:] = [each for each in sys.path if each not in {hidden!r}]
"""


def only(folder: Path, *names: str) -> dict[str, str]:
    """The environment of a Python that finds the packages ``names``, and what they require."""
    wanted, linked = list(names), set()
    while wanted:
        name = wanted.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # required on another system, or by an extra
        if found.name in linked:
            continue
        linked.add(found.name)
        for path in {file.parts[0] for file in found.files or () if ".." not in file.parts}:
            if not (folder / path).exists():
                (folder / path).symlink_to(str(found.locate_file(path)))
        plain = [each for each in found.requires or () if "extra ==" not in each]
        wanted += [re.split(r"[^\w.-]", each)[0] for each in plain]
    hide = HIDE.format(hidden=site.getsitepackages())
    (folder / "sitecustomize.py").write_text(hide, encoding="utf-8")
    return {
        **{key: value for key, value in os.environ.items() if "DJANGO" not in key},
        "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT))),
    }


def run(environment: dict[str, str], *commands: str, cwd: Path = ROOT) -> None:
    """``python`` with the words of each command, until one fails."""
    for command in commands:
        done = subprocess.run(
            [sys.executable, *command.split()],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_the_packages_are_hidden(tmp_path: Path) -> None:
    """Or the tests below would show nothing; from a child as well."""
    look = (
        "import importlib.util as util, os, subprocess, sys\n"
        "assert util.find_spec('django') and util.find_spec('django_idgen')\n"
        "assert not any(map(util.find_spec, ('celery', 'pytest', 'redis', 'rest_framework')))\n"
        "if not sys.argv[1:]: subprocess.check_call([sys.executable, __file__, 'child'])\n"
    )
    script = tmp_path / "look.py"
    script.write_text(look, encoding="utf-8")
    packages = tmp_path / "packages"
    packages.mkdir()
    run(only(packages, *DJANGO), str(script))


def test_the_example_runs_with_django_alone(tmp_path: Path) -> None:
    """Its checks and its quick start; there is no migration to make."""
    example = shutil.copytree(
        ROOT / "example_project", tmp_path / "example", ignore=shutil.ignore_patterns("*.sqlite3*")
    )
    packages = tmp_path / "packages"
    packages.mkdir()
    run(
        only(packages, *DJANGO),
        "-W error manage.py check",
        "-W error manage.py makemigrations --check --dry-run",
        "-W error manage.py quickstart --orders 100",
        cwd=example,
    )


@pytest.mark.parametrize(
    ("settings", "tests"),
    [("project_settings", "shop.alone_tests"), ("simple_admin_settings", "office.index_tests")],
    ids=["noadmin", "simpleadmin"],
)
def test_a_project_without_the_admin(tmp_path: Path, settings: str, tests: str) -> None:
    """Without any of Django's apps, or with an admin that finds no modules; Django alone."""
    run(
        {**only(tmp_path, *DJANGO), "DJANGO_SETTINGS_MODULE": settings},
        "-W error manage.py check",
        "-W error manage.py migrate",
        f"-W error manage.py test {tests}",
        cwd=PROJECTS,
    )


def test_the_core_runs_without_django(tmp_path: Path) -> None:
    """Its tests of rules and imports, where neither Django nor any extra is installed."""
    run(
        only(tmp_path, *CORE),
        "-m pytest -q -p no:cacheprovider -c tests/core/pytest.ini --rootdir . "
        "tests/core/test_imports.py tests/core/test_layout.py tests/core/test_snowflake.py "
        "tests/core/test_segment_generator.py",
    )
