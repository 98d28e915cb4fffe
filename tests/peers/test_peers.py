"""Three tests that django_idgen passes and five packages do not: each has the fault (I5, I6)."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..servers import absent

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork."),
]
ROOT = Path(__file__).parents[2]

OURS = """
import django
from django.conf import settings
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}
settings.configure(INSTALLED_APPS=["django_idgen"], DATABASES={"default": database}, USE_TZ=True)
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django_idgen import generators
take = generators["default"].next_id
def seconds(id):
    return generators["default"].layout.unpack(id).created.timestamp()
"""
SNOWFLAKE_ID = """
from snowflake import SnowflakeGenerator
made = SnowflakeGenerator(1)
def take():
    return next(made)
"""
TOOLKIT = """
from snowflake_id_toolkit import TwitterSnowflakeIDGenerator
take = TwitterSnowflakeIDGenerator(node_id=1).generate_next_id
"""
SONYFLAKE = """
from sonyflake import SonyFlake
take = SonyFlake(machine_id=lambda: 1).next_id
"""
FLAKEID = """
import flakeid
take = flakeid.make_generator(flakeid.PRESET_TWITTER, datacenter_id=1, machine_id=1).next_id
"""
UUID6 = """
import uuid6
def take():
    return uuid6.uuid7().int
def seconds(id):
    return (id >> 80) / 1000
"""

CHILDREN = """
import json, os, time
take()
pipes = []
for _ in range(2):
    reads, writes = os.pipe()
    if os.fork() == 0:
        ids = []
        for _ in range(300):
            ids.append(take())
            time.sleep(0.0005)
        os.write(writes, json.dumps(ids).encode())
        os._exit(0)
    os.close(writes)
    pipes.append(reads)
ids = [id for reads in pipes for id in json.loads(open(reads).read())]
assert len(ids) == 600
assert len({*ids}) == 600, f"{600 - len({*ids})} ids twice"
"""
CLOCK_BACK = """
import time
import time_machine
take()
with time_machine.travel(time.time() - 5, tick=True):
    try:
        found = take()
    except Exception as error:
        found = error
assert found is not None, "no id, and no error"
"""
BURST = """
import time
for _ in range(20_000):
    last = take()
assert seconds(last) - time.time() < 1, f"{seconds(last) - time.time():.1f} s ahead"
"""

CHECKS = [
    pytest.param(SNOWFLAKE_ID, CHILDREN, "ids twice", id="snowflake-id, two children"),
    pytest.param(SNOWFLAKE_ID, CLOCK_BACK, "no error", id="snowflake-id, the clock goes back"),
    pytest.param(TOOLKIT, CHILDREN, "ids twice", id="snowflake-id-toolkit, two children"),
    pytest.param(SONYFLAKE, CHILDREN, "ids twice", id="sonyflake-py, two children"),
    pytest.param(FLAKEID, CHILDREN, "ids twice", id="flakeid, two children"),
    pytest.param(UUID6, BURST, "s ahead", id="uuid6, a burst"),
]


def run(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("check", [CHILDREN, CLOCK_BACK, BURST], ids=["fork", "clock", "burst"])
def test_ours_passes(check: str, tmp_path: Path) -> None:
    """Hazards 35, 36 and 38: no id of a parent, an id or an error, and no time far ahead."""
    done = run(OURS + check, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("peer", "check", "words"), CHECKS)
def test_peers_fail(peer: str, check: str, words: str, tmp_path: Path) -> None:
    """So the test above can fail."""
    package = peer.split()[1]
    if find_spec(package) is None:
        absent(f"{package} is not installed. Run: pip install -e '.[test]'")
    done = run(peer + check, tmp_path)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr
    assert words in done.stderr
