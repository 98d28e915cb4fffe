"""The arrows between the modules: which way an import may point."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import django_idgen

PACKAGE = Path(django_idgen.__file__).parent
ROOMS = (
    {"core"},
    {"settings"},
    {"db"},
    {"remote"},
    {"leases", "sources"},
    {"process"},
    {"fields"},
    {"strings"},
    {"ops"},
    {"rest", "admin"},
    {"contrib"},
    {"management"},
)
FLOORS = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
"""The rooms from the ground up: each may import those below it."""
ROOT = {
    "__init__",
    "apps",
    "models",
    "signals",
    "checks",
    "tasks",
    "pytest_plugin",
    "client",
}
CLIENT = {"client", "remote"}
"""What has no settings to name them in."""
CORE = sorted(f"django_idgen.core.{path.stem}" for path in PACKAGE.glob("core/[a-z]*.py"))


@cache
def modules() -> dict[str, Path]:
    """Dotted name inside the package: file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


@cache
def imports(name: str, path: Path) -> list[tuple[str, bool]]:
    """Every module that a module imports, absolute, and whether it is one of ours.

    ``from . import x`` counts as ``x``, and imports inside functions count, too.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    package = [part for part in package if part]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [own(each.name) for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            base += node.module.split(".") if node.module else []
            for each in node.names:
                dotted = ".".join([*base, each.name])
                found.append((dotted if dotted in modules() else ".".join(base), True))
        elif isinstance(node, ast.ImportFrom):
            found.append(own(node.module or ""))
    return found


def own(module: str) -> tuple[str, bool]:
    if module == "django_idgen" or module.startswith("django_idgen."):
        return module.removeprefix("django_idgen").removeprefix("."), True
    return module, False


def arrows(folder: str) -> list[tuple[str, str, bool]]:
    return [
        (name, target, ours)
        for name, path in modules().items()
        if name == folder or name.startswith(f"{folder}.")
        for target, ours in imports(name, path)
    ]


def crossings() -> Iterator[tuple[str, str, str, str]]:
    """Every import of one of ours: the module and its room, what it imports and its room."""
    for name, path in modules().items():
        for target, ours in imports(name, path):
            if ours:
                yield name, name.split(".")[0], target, target.split(".")[0]


def test_the_walk_sees_what_is_imported():
    """It finds a relative import, one from the package, and one of the library."""
    seen = {(target, ours) for _, target, ours in arrows("core.keeper")}
    assert ("core.clock", True) in seen
    assert ("threading", False) in seen
    assert ("core.lease", True) in {(target, ours) for _, target, ours in arrows("leases.memory")}


def test_the_core_is_the_standard_library_alone():
    """Neither Django nor a client library, nor any other part of this package."""
    wrong = [
        (name, target)
        for name, target, ours in arrows("core")
        if (not target.startswith("core") and target != "" if ours else not is_standard(target))
    ]
    assert wrong == []


def is_standard(module: str) -> bool:
    return module.split(".")[0] in sys.stdlib_module_names


def test_a_room_imports_none_that_stands_above_it():
    """Of the rooms, each knows those below it."""
    wrong = [
        (name, target)
        for name, room, target, other in crossings()
        if room in FLOORS and other in FLOORS and FLOORS[room] < FLOORS[other]
    ]
    assert wrong == []


def test_registries_and_sources_know_nothing_of_each_other():
    """A worker id and a segment have only the core, and a connection, in common."""
    wrong = [
        (name, target)
        for name, room, target, other in crossings()
        if {room, other} == {"leases", "sources"}
    ]
    assert wrong == []


def test_backends_are_named_by_dotted_paths():
    """Only its own folder, contrib, the client and the tools for tests import one.

    Who got which ids is written in rows, which ``ops`` reads where they are written. What tests
    forbid is no backend.
    """
    wrong = [
        (name, target)
        for name, room, target, other in crossings()
        if other in {"leases", "sources"}
        if target not in {"sources.history", "leases.forbidden"}
        if room not in {other, "testing", "contrib", *CLIENT}
    ]
    assert wrong == []


def test_nothing_but_commands_imports_contrib():
    """Its features are named in settings and URLs."""
    wrong = [
        (name, target)
        for name, room, target, other in crossings()
        if other == "contrib" and room not in {"contrib", "management"}
    ]
    assert wrong == []


def test_the_root_has_what_a_project_names():
    """Eight modules; all others are in a room."""
    assert {path.stem for path in PACKAGE.glob("*.py")} == ROOT


LATE = {
    ("checks", "ops.doctor"): "examinations are imported where databases are checked",
    ("db.rows", "models"): "models can't be imported before the apps are loaded",
    ("process.maps", "process.tags"): "fields need the maps before there are models",
    ("db.sqlite", "db.tables"): "a file that is new gets its tables when it is opened",
}
"""Imports inside functions that close a circle, and why they can't go."""
OF_LIBRARIES = "strings.registration"
"""It imports a module for each library that is installed; they know it."""


def test_nothing_in_the_package_imports_in_a_circle():
    """All have a direction: also those for types, and, but for the late ones, in functions."""
    edges = {
        name: {
            target
            for target, ours in imports(name, path)
            if ours and (name, target) not in LATE and name != OF_LIBRARIES
        }
        - {"", name}
        for name, path in modules().items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for target in edges.get(name, ()):
                visit(target, (*trail, name))
            done.add(name)

    for name in edges:
        visit(name, ())


BLOCKED = textwrap.dedent(
    """
    import importlib, sys
    from importlib.abc import MetaPathFinder

    class Blocked(MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {"django", "redis", "django_redis", "celery", "kazoo"}:
                raise ImportError(f"{name} is blocked")

    sys.meta_path.insert(0, Blocked())
    for name in %r:
        importlib.import_module(name)
    """
)


def run_blocked(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED % CORE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_block_blocks():
    """What is run under it can't import Django."""
    out = run_blocked("try: import django\nexcept ImportError as error: print(error)")
    assert out.strip() == "django is blocked"


def test_the_core_gives_ids_without_django_redis_or_celery():
    """All of its modules import, and a generator and a tag of segments work."""
    out = run_blocked(
        """
        from django_idgen.core.lease import Namespace
        from django_idgen.core.loader import Loader
        from django_idgen.core.layout import parse_layout
        from django_idgen.core.segment_generator import SegmentAllocator
        from django_idgen.core.snowflake import SnowflakeGenerator
        from django_idgen.leases.memory import MemoryLeases
        from django_idgen.sources.memory import MemorySource

        layout = parse_layout("standard")
        space = Namespace(
            "default", layout.epoch_us, layout.tick_us, layout.max_ticks, layout.workers, 1000, 10
        )
        with SnowflakeGenerator(layout, MemoryLeases(space)) as generator:
            print(generator.next_id() < generator.next_id())
        allocator = SegmentAllocator(MemorySource(10), Loader())
        print(allocator.generator("orders").next_ids(3))
        allocator.close()
        """
    )
    assert out.split("\n")[:2] == ["True", "[1, 2, 3]"]


# --- the client -------------------------------------------------------------------

BLOCK_HTTPX = """
class NoHttpx(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"httpx", "httpcore"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoHttpx())
"""


def test_without_httpx_the_client_says_what_to_install():
    """An error of settings that names the extra, for the client and both backends."""
    out = run_blocked(
        BLOCK_HTTPX
        + """
from django_idgen.core.errors import ConfigurationError
for name in ("client", "sources.http", "leases.http"):
    try:
        importlib.import_module(f"django_idgen.{name}")
    except ConfigurationError as error:
        print(error)
"""
    )
    lines = out.strip().splitlines()
    assert len(lines) == 3
    assert all('pip install "django-idgen[client]"' in line and "httpx" in line for line in lines)


def test_the_client_is_made_without_django():
    """It imports and is set up, and tells what keeps it from ids, with Django out of reach."""
    if importlib.util.find_spec("httpx") is None:
        pytest.skip("httpx is not installed, as in the environment of the core alone.")
    out = run_blocked(
        """
        import socket
        from django_idgen.client import Client
        from django_idgen.core.errors import RegistryUnavailable, SegmentUnavailable
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}/idgen", token="idgen_x", wait=0.3) as client:
            for take in (client.next_id, client.segments["orders"].next_id):
                try:
                    take()
                except (RegistryUnavailable, SegmentUnavailable) as error:
                    print(type(error).__name__, f":{port}/idgen/" in str(error))
        print(sorted(name for name in sys.modules if name.split(".")[0] == "django"))
        """
    )
    assert out.splitlines() == ["RegistryUnavailable True", "SegmentUnavailable True", "[]"]
