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
from django.db import connections

from django_idgen import checks
from tests import servers, tiers, warm
from tests.console import NOT_RUN, Console, Walkthrough, lines
from tests.redis_servers import redis_farm

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
ROOT_PAGES = len(list(ROOT.glob("*.md")))
QUICK_START = ROOT / "docs" / "quickstart.md"
"""The page that is followed in a project of its own."""
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
PIP = re.compile(r"[`/\n]pip install (?:-q )?(?:\"([^\"]+)\"|([\w/.-]+))")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")

SHOP = """
shop = types.ModuleType("shop")
shop.__path__ = []
sys.modules["shop"] = shop
class Shop(AppConfig):
    name, path = "shop", "."
shop.Shop = Shop
"""
"""The app of the pages, without a file of its own."""

# A project named as in the pages: one app, "shop", and in-memory databases. Each page is run in a
# child of its own, and so are settings on it.
PROJECT = (
    """
import json, os, re, sys, types
import django
from django.apps import AppConfig
from django.conf import settings
CACHES = {
    "idgen": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/1"}
}
"""
    + SHOP
    + """settings.configure(
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
            in_child(look_at_settings, idgen, namespace.get("CACHES", CACHES))
    if "LAYOUT" in namespace:
        from django_idgen.core.layout import parse_layout
        assert parse_layout(namespace["LAYOUT"]).bits <= 63
    for block in urls:
        look_at_urls(block, idgen)

def in_child(look, *args):
    # A namespace keeps its first settings, and a page may show several.
    child = os.fork()
    if not child:
        look(*args)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)

def look_at_settings(idgen, caches):
    with override_settings(IDGEN=idgen, CACHES=caches):
        assert checks.check_settings() == []
        if not any(word in repr(idgen) for word in ("alias", "databases", "http", "hosts")):
            assert next_id() and segments["tea"].next_id() >= 1

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
)


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
    if page != QUICK_START
    and not all(NOT_RUN.match(command) for command, _ in lines(page.read_text()))
]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=[] if page.stem == "operating" else [pytest.mark.long], id=page.name
        )
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


@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", ["## 8. Tests", *tiers.long("")])
def test_the_quick_start_can_be_followed_in_a_new_project(end: str, tmp_path: Path) -> None:
    """What a reader pastes into files and a terminal, step by step, works and prints that."""
    for program in ("bash", "curl"):
        if shutil.which(program) is None:
            servers.absent(f"No {program} on the PATH.")
    text = QUICK_START.read_text("utf-8")
    assert end in text
    with redis_farm() as farm, Walkthrough(tmp_path / "home", farm.server().port) as reader:
        reader.follow(text.partition(end)[0] if end else text)
        assert reader.followed > 10


def test_each_file_that_a_page_shows_is_one_that_is_followed() -> None:
    """A block with a title is a file of a new project, and no other test looks at it."""
    shown = {page.stem for page in PAGES if "```python title=" in page.read_text("utf-8")}
    assert shown == {"quickstart", "segments"}  # by tests/contrib/test_tenants.py


ANSWERED = (
    """
import json, sys, types
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
import django
from django.apps import AppConfig
from django.conf import settings
"""
    + SHOP
    + """given = json.load(sys.stdin)
settings.configure(
    DATABASES={"default": given["database"]},
    INSTALLED_APPS=["django_idgen", "shop.Shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()
from django.core.management import call_command
from django.db import connection, transaction
call_command("migrate", "django_idgen", verbosity=0)
page = {"__name__": "shop.models"}
for block in given["blocks"]:
    exec(compile(block, "<block of the page>", "exec"), page)
Invoice, Line, counter = page["Invoice"], page["Line"], page["InvoiceCounter"]
with connection.schema_editor() as editor:
    for model in (counter, Invoice, Line):
        editor.create_model(model)

def bill(fails):
    try:
        with transaction.atomic():
            number = page["next_invoice_number"]()
            if fails:
                raise LookupError
            return number
    except LookupError:
        return None
    finally:
        connection.close()

with ThreadPoolExecutor(4) as pool:
    billed = list(pool.map(bill, [n % 3 == 0 for n in range(30)]))
assert sorted(filter(None, billed)) == list(range(1, 21)), billed

page["import_invoices"](3)
assert set(Line.objects.values_list("invoice", flat=True)) == {
    each.pk for each in Invoice.objects.all()
}
assert '"1152921504606846976"' in page["order_data"](types.SimpleNamespace(pk=2**60))

from django_idgen import segments
from django_idgen.ops.tags.edits import pause_tag
segments["tickets"].next_id()
pause_tag("tickets")
segments["tickets"].clear()
middleware = page["NoIdsIs503"](None)
try:
    segments["tickets"].next_id()
except Exception as error:
    answer = middleware.process_exception(None, error)
assert (answer.status_code, answer["Retry-After"]) == (503, "5")
assert middleware.process_exception(None, LookupError()) is None

from django_idgen import generators
first_id = generators["default"].layout.min_id_at
with connection.cursor() as cursor:
    for each in page["Migration"].operations:
        cursor.execute(each.sql)
    december = datetime(2026, 12, 1, tzinfo=UTC)
    for moment in (december - timedelta(milliseconds=1), december):
        cursor.execute("INSERT INTO shop_event VALUES (%s, 'x')", [first_id(moment)])
    cursor.execute("SELECT tableoid::regclass::text FROM shop_event ORDER BY id")
    assert cursor.fetchall() == [("shop_event_2026_11",), ("shop_event_2026_12",)]
    cursor.execute(f"EXPLAIN SELECT * FROM shop_event WHERE id >= {first_id(december)}")
    plan = str(cursor.fetchall())
    assert "2026_12" in plan and "2026_11" not in plan, plan
    cursor.execute(given["sql"])
    read = sorted(moment for (moment,) in cursor.fetchall())
    decoded = Invoice.objects.order_by("pk").values_list("id__created", flat=True)
    assert [abs(a - b).total_seconds() < 0.001 for a, b in zip(read, decoded)] == [True] * 3
"""
)


def test_what_the_page_of_questions_answers_holds(postgres: str) -> None:
    """Invoices without gaps, parents, JSON in a page, 503, SQL, partitions by month."""
    page = (ROOT / "docs" / "faq.md").read_text("utf-8")
    names = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")
    said = {
        "database": {name: connections.settings[postgres][name] for name in names},
        "blocks": PYTHON.findall(page),
        "sql": page.partition("```sql\n")[2].partition("```")[0],
    }
    done = warm.run(["-W", "error", "-c", ANSWERED], said=json.dumps(said), timeout=120, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


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
        "reference-errors.md",
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
