"""The example project, as a newcomer meets it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from django.db import connections

from tests import servers, warm
from tests.servers import free_port
from tests.tiers import long

MANAGE = Path(__file__).parents[2] / "example_project" / "manage.py"


def manage(
    url: str, *arguments: str, cwd: Path = MANAGE.parents[1]
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHOP_DATABASE_URL": url}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    command = ["-W", "error", str(MANAGE), *arguments]
    return warm.run(command, cwd=cwd, env=environment)


def url_of(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if place == "sqlite":
        return f"sqlite://{tmp_path}/shop.sqlite3"
    alias = request.getfixturevalue(place)
    return servers.URLS[alias].rpartition("/")[0] + f"/{connections.settings[alias]['NAME']}"


@pytest.mark.parametrize("place", long("sqlite", "postgres"))
def test_the_quickstart_saves_rows_from_all_sides_and_proves_their_ids(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """On an empty database, and once more on the one that it left behind."""
    url = url_of(place, tmp_path, request)
    for _ in range(2):
        done = manage(url, "quickstart", "--orders", "200")
        assert done.returncode == 0, done.stderr
        assert "200 orders and 200 parcels in the database, no id twice: OK" in done.stdout
        workers = re.findall(r"process \d: worker id (\d+)", done.stdout)
        assert len(set(workers)) == 2
        assert re.search(r"\d{18} = 20\d\d-.* UTC, worker \d+, sequence \d+", done.stdout)
        segments = r"\d+ = tag 'parcel', out of the segment (\d+)\.\.\d+ of process (\d)"
        found = sorted((int(start), of) for start, of in re.findall(segments, done.stdout))
        assert found[0][1] != found[1][1]  # they run side by side, so their segments take turns


@pytest.mark.long
def test_what_it_says_to_go_on_with_can_be_copied(tmp_path: Path) -> None:
    """The lines at its end run as they stand, in the shell that it was started from."""
    url = f"sqlite://{tmp_path}/shop.sqlite3"
    said = manage(url, "quickstart", "--orders", "16").stdout
    (line,) = re.findall(r"^ +(.* idgen_bench) --count 200000$", said, re.MULTILINE)
    done = subprocess.run(
        f"{line} --count 100",
        shell=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "SHOP_DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "shop.settings"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none repeats" in done.stdout


def test_an_address_that_can_t_be_is_one_line(tmp_path: Path) -> None:
    """It names the setting and the slip, with what is known, and makes no file of that name."""
    kinds = "one of postgres, postgresql, mysql, mariadb, sqlite."
    none = "SHOP_DATABASE_URL is no address. It begins with one of postgres, "
    for url, command, words in (
        (
            "oracle://x",
            "quickstart",
            f"SHOP_DATABASE_URL begins with 'oracle': it must be {kinds}\n",
        ),
        ("bogus", "quickstart", none),
        ("bogus", "migrate", none),
        ("bogus", "runserver", none),
        ("postgres://127.0.0.1:5x/shop", "migrate", "SHOP_DATABASE_URL can't be read: "),
    ):
        done = manage(url, command, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(words)
        assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


WITHOUT_DRIVERS = """
import runpy, sys
sys.modules["MySQLdb"] = sys.modules["pymysql"] = None  # as if they were not installed
sys.argv = [{path!r}, "quickstart"]
sys.path.insert(0, {directory!r})
runpy.run_path({path!r}, run_name="__main__")
"""


def test_a_driver_that_is_missing_is_one_line() -> None:
    """The line has the command that installs one."""
    code = WITHOUT_DRIVERS.format(path=str(MANAGE), directory=str(MANAGE.parent))
    environment = {**os.environ, "SHOP_DATABASE_URL": "mysql://root@127.0.0.1/shop"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    done = warm.run(["-c", code], cwd=MANAGE.parents[1], env=environment)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "SHOP_DATABASE_URL needs a driver for MySQL and MariaDB: run 'pip install pymysql'."
    )


@pytest.mark.parametrize(
    ("server", "scheme", "advice"),
    [
        ("postgres", "postgres", "Make it: createdb -h "),
        ("mariadb", "mysql", "Make it: mariadb-admin -h "),
        ("mariadb", "mariadb", "Make it: mariadb-admin -h "),
    ],
)
def test_a_database_that_is_missing_is_one_line(server: str, scheme: str, advice: str) -> None:
    """The line has the command that makes it; there is no traceback. MariaDB has its own name."""
    servers.require(server)
    host = servers.URLS[server].rpartition("/")[0].partition("://")[2]
    done = manage(f"{scheme}://{host}/no_shop_yet", "quickstart")
    assert done.returncode == 1
    assert "There is no database 'no_shop_yet' on that server." in done.stderr
    assert advice in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_does_not_answer_is_one_line() -> None:
    """It says where no server answers."""
    port = free_port()
    done = manage(f"postgres://postgres@127.0.0.1:{port}/shop", "migrate")
    assert done.returncode == 1
    assert f"No database server answers at 127.0.0.1:{port}. Start it first." in done.stderr
    assert "Traceback" not in done.stderr


IMPOSSIBLE = """
from django.core.management import CommandError, call_command
for word in ("--orders=0", "--orders=-5", "--processes=0"):
    try:
        call_command("quickstart", word)
    except CommandError as error:
        print(error)
"""


def test_impossible_numbers_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    """The error says what is possible, without a traceback, and no file appears."""
    url = f"sqlite://{tmp_path}/shop.sqlite3"
    words = "--processes and --threads take 1 to 16"
    done = manage(url, "quickstart", "--threads", "99")
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert manage(url, "shell", "-v0", "-c", IMPOSSIBLE).stdout.count(words) == 3
    assert not list(tmp_path.iterdir())


def test_the_example_has_no_warnings_and_no_migration_to_make(tmp_path: Path) -> None:
    """``check`` and ``makemigrations --check`` have nothing to say."""
    url = f"sqlite://{tmp_path}/shop.sqlite3"
    for arguments in (["check", "--fail-level", "WARNING"], ["makemigrations", "--check"]):
        done = manage(url, *arguments)
        assert done.returncode == 0, done.stderr
