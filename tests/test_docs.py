"""The README and docs: their Python runs, their links lead somewhere, their names exist."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from django_idgen import checks, signals
from django_idgen.core import errors
from tests import servers, tiers, warm
from tests.console import NOT_RUN, Console, Walkthrough, lines
from tests.redis_servers import redis_farm

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
ROOT_PAGES = len(list(ROOT.glob("*.md")))
FOLLOWED = {
    "quickstart": ["quickstart"],
    "celery": ["quickstart", "celery"],
    "tutorial": ["tutorial"],
}
"""Pages that are followed in a project of their own, and those that a reader followed before."""
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
PIP = re.compile(r"[`/\n]pip install (?:-q )?(?:\"([^\"]+)\"|([\w/.-]+))")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")

# A project named as in the pages: one app, "shop", and in-memory databases. Each page is run in a
# child of its own.
PROJECT = """
import json, os, re, sys, types
import django
from django.apps import AppConfig
from django.conf import settings
CACHES = {
    "idgen": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/1"}
}
shop = types.ModuleType("shop")
shop.__path__ = []
sys.modules["shop"] = shop
class Shop(AppConfig):
    name, path = "shop", "."
shop.Shop = Shop
settings.configure(
    DATABASES={
        alias: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        for alias in ("default", "second", "ids", "tickets1", "tickets2")
    },
    INSTALLED_APPS=[
        "django.contrib.auth", "django.contrib.contenttypes", "django_idgen", "shop.Shop"],
    USE_TZ=True,
)
django.setup()
from django.core.management import call_command
from django.test import override_settings
from django_idgen import checks, next_id, segments
for alias in settings.DATABASES:
    call_command("migrate", database=alias, verbosity=0)

def run(blocks):
    namespace = {"__name__": "shop.models"}
    idgen, urls = {}, []
    for block in blocks:
        if "urlpatterns" in block:
            urls.append(block)  # settings are read first, wherever they stand
            continue
        exec(compile(block, "<block of the page>", "exec"), namespace)
        if "IDGEN" in namespace:
            idgen = namespace.pop("IDGEN")
            with override_settings(IDGEN=idgen, CACHES=namespace.get("CACHES", CACHES)):
                assert checks.check_settings() == []
                if not any(word in repr(idgen) for word in ("alias", "databases", "http", "hosts")):
                    assert next_id() and segments["tea"].next_id() >= 1
    if "LAYOUT" in namespace:
        from django_idgen.core.layout import parse_layout
        assert parse_layout(namespace["LAYOUT"]).bits <= 63
    for block in urls:
        look_at_urls(block, idgen)

def routes(patterns, before="/"):
    for each in patterns:
        route = before + str(each.pattern).removeprefix("^").removesuffix("$").removesuffix("/?")
        below = getattr(each, "url_patterns", None)
        yield from [route] if below is None else routes(below, route)

def look_at_urls(block, idgen):
    from django.core.checks import run_checks
    from django.test import Client
    module = sys.modules["shop.urls"] = types.ModuleType("shop.urls")
    with override_settings(ROOT_URLCONF="shop.urls", IDGEN=idgen):
        exec(compile(block, "<block of the page>", "exec"), vars(module))
        assert run_checks(tags=["urls"]) == []
        plain = [route for route in routes(module.urlpatterns) if not re.search("[<([]", route)]
        assert plain
        for route in plain:
            assert Client().get(route).status_code in {200, 400, 401, 403, 405}, route

for page, blocks in json.load(sys.stdin).items():
    child = os.fork()
    if not child:
        run(blocks)
        sys.exit()
    if os.waitpid(child, 0)[1]:
        print(page)
"""


def test_the_code_on_each_page_runs(tmp_path: Path) -> None:
    """Every Python block of a page, after those above it, with warnings as errors."""
    code = {
        str(page.relative_to(ROOT)): [
            block.replace("/var/lib/shop", str(tmp_path))
            for block in PYTHON.findall(page.read_text())
        ]
        for page in PAGES
    }
    assert sum(map(len, code.values())) > 50
    done = warm.run(["-W", "error", "-c", PROJECT], said=json.dumps(code), timeout=250, cwd=ROOT)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


WITH_COMMANDS = [
    page
    for page in PAGES
    if page.stem not in (*FOLLOWED, "README.zh-CN")
    and not all(NOT_RUN.match(command) for command, _ in lines(page.read_text()))
]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.stem == "README" else [pytest.mark.long], id=page.name)
        for page in WITH_COMMANDS
    ],
)
def test_the_commands_on_a_page_run(page: Path, tmp_path: Path, django_db_blocker: Any) -> None:
    """Each line of its console blocks, but for installing, and prints what the page shows."""
    servers.require("postgres")
    if shutil.which("curl") is None:
        servers.absent("No curl on the PATH.")
    with django_db_blocker.unblock(), Console(tmp_path, page.read_text()) as console:
        console.follow()


def test_the_chinese_readme_has_commands_of_the_english_one() -> None:
    """Which are run."""
    english, chinese = (
        [command for command, _ in lines((ROOT / name).read_text("utf-8"))]
        for name in ("README.md", "README.zh-CN.md")
    )
    assert set(chinese) <= set(english)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["quickstart", *tiers.long("celery", "tutorial")])
def test_a_page_can_be_followed_in_a_new_project(name: str, tmp_path: Path) -> None:
    """What a reader pastes into files and a terminal, step by step, works and prints that."""
    for program in ("bash", "curl"):
        if shutil.which(program) is None:
            servers.absent(f"No {program} on the PATH.")
    with redis_farm() as farm, Walkthrough(tmp_path / "home", farm.server().port) as reader:
        for page in FOLLOWED[name]:
            reader.follow(ROOT / "docs" / f"{page}.md")
        assert reader.followed > 3


def test_each_file_that_a_page_shows_is_one_that_is_followed() -> None:
    """A block with a title is a file of a new project, and no other test looks at it."""
    shown = {page.stem for page in PAGES if "```python title=" in page.read_text("utf-8")}
    assert shown == {*FOLLOWED, "tenants"}  # by tests/contrib/test_tenants.py


# --- the two commands of the README ------------------------------------------------------


def set_up(page: str) -> list[str]:
    """The lines of a page that make a virtual environment."""
    text = (ROOT / page).read_text("utf-8")
    return re.findall(r"^ *(python3 -m venv .*)$", text, re.MULTILINE)


def test_two_commands_do_all_set_up() -> None:
    """README has two, each one line, in the first screen; other pages and CI have the same."""
    trial, tests = set_up("README.md")
    assert set_up("README.zh-CN.md") == [trial, tests]
    assert set_up("CONTRIBUTING.md") == set_up(".ci/run") == [tests]
    for page in ("README.md", "README.zh-CN.md"):
        first_screen = (ROOT / page).read_text("utf-8").splitlines()[:25]
        assert {trial, tests} < set(first_screen)


def test_the_first_command_of_the_readme_runs_on_a_fresh_machine(tmp_path: Path) -> None:
    """In a clone, with no environment made: it installs, fills the shop, and proves its ids."""
    if shutil.which("bash") is None:
        servers.absent("No bash on the PATH.")
    files = ("django_idgen", "example_project", "pyproject.toml", "README.md", "LICENSE")
    ignored = shutil.ignore_patterns("*.sqlite3*", "__pycache__")
    for name in files:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    names = ("HOME", "LANG", "PATH", "PIP_INDEX_URL", "TMPDIR")
    done = subprocess.run(
        ["bash", "-c", set_up("README.md")[0]],
        cwd=tmp_path,
        env={name: os.environ[name] for name in names if name in os.environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no id twice" in done.stdout, done.stdout


def test_what_pages_have_pip_install_is_there() -> None:
    """The project itself, its clone, one of its extras, or a package that the pages name."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [a or b for page in PAGES for a, b in PIP.findall(page.read_text())]
    assert len(named) > 9
    for each in named:
        what, _, extras = each.rstrip("]").partition("[")
        others = {".", "path/to/clone", "tox", "tox-uv", "httpx", "pymysql"}
        assert what in {known["name"], *others}, each
        assert set(filter(None, extras.split(","))) <= set(known["optional-dependencies"]), each


def test_links_lead_somewhere() -> None:
    """A link to another page or file of the project names one that is there."""
    for page in PAGES:
        for target in LINK.findall(page.read_text()):
            assert "://" in target or (page.parent / target).exists(), (page, target)


def test_every_page_can_be_reached_from_the_readme() -> None:
    """No page is written and then forgotten."""
    linked = set(LINK.findall((ROOT / "README.md").read_text()))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked
    for index in (ROOT / "docs").glob("*/index.md"):
        assert f"docs/{index.parent.name}/index.md" in linked
        below = {page.name for page in index.parent.glob("*.md")} - {"index.md"}
        assert below <= set(LINK.findall(index.read_text("utf-8")))


def script(name: str) -> Any:
    """Import a script of docs/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "kind"), [("drawings", "*"), ("scale", "*.svg")])
def test_the_drawings_are_what_the_script_draws(name: str, kind: str) -> None:
    """After a change run ``python docs/drawings.py``. A layout's bits are those of the code.

    Plots of scale are drawn from what was measured: ``python docs/scale.py``.
    """
    made = script(name).made()
    folder = ROOT / "docs" / name
    assert {path.name for path in folder.glob(kind)} == set(made)
    for file, content in made.items():
        assert (folder / file).read_text("utf-8") == content, file


def test_the_pages_of_reference_are_what_the_script_writes(tmp_path: Path) -> None:
    """After a change of options, metrics or tests of hazards run ``python docs/reference.py``."""
    done = warm.run(["docs/reference.py", str(tmp_path)], timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    written = sorted(tmp_path.iterdir())
    assert [path.name for path in written] == [
        "reference-checks.md",
        "reference-hazards.md",
        "reference-metrics.md",
        "reference-settings.md",
    ]
    for path in written:
        assert (ROOT / "docs" / path.name).read_text("utf-8") == path.read_text("utf-8")


def test_every_page_stands_in_the_menu_of_the_site() -> None:
    """The site's build refuses a page that does not."""
    menu = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    assert menu >= {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[ROOT_PAGES:]}


def test_every_check_is_listed_and_every_listed_one_exists() -> None:
    """The docstring of ``checks``, from which the page of all checks is made, has them all."""
    listed = re.findall(r"^([EIW]\d{3}) ", checks.__doc__ or "", re.MULTILINE)
    assert listed == list(dict.fromkeys(listed))
    code = "".join(path.read_text("utf-8") for path in (ROOT / "django_idgen").rglob("*.py"))
    made = set(re.findall(r"django_idgen\.(?:\{')?([EIW]\d{3})", code))
    made |= set(re.findall(r"else '([EIW]\d{3})'\}", code))
    assert made == set(listed)


def test_every_signal_is_documented() -> None:
    """The table of docs/errors.md has each."""
    text = (ROOT / "docs" / "errors.md").read_text()
    for name in signals.SIGNALS:
        assert f"`{name}`" in text


def test_every_error_that_a_page_names_exists() -> None:
    """A renamed exception is renamed in the docs."""
    table = (ROOT / "docs" / "errors.md").read_text().split("## System checks")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row)}
    known = set(vars(errors)) | {"SettingsError", "ImproperlyConfigured"}
    assert len(named) > 15
    assert named <= known
