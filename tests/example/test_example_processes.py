"""The example project's Celery application and its compose file, as they come."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from django_idgen.core.clock import SYSTEM_CLOCK
from tests import warm

EXAMPLE = Path(__file__).parents[2] / "example_project"
PATIENCE = 60.0
SELL = """
from orders.models import Parcel
from orders.tasks import sell_some
assert sell_some(3) == Parcel.objects.count() > 0
"""
SEND = """
import sys
from shop.celery import app
for task in sys.argv[1:]:
    app.send_task(f"django_idgen.tasks.{task}")
"""
TASKS = ("renew_worker_leases", "preload_segments", "extend_native", "prune_history")


def environment(directory: Path) -> dict[str, str]:
    given = {**os.environ, "TMPDIR": str(directory)}
    given["SHOP_DATABASE_URL"] = f"sqlite://{directory}/shop.sqlite3"
    for name in ("DJANGO_SETTINGS_MODULE", "SHOP_BROKER_URL"):
        given.pop(name, None)
    return given


def python(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(list(words), cwd=EXAMPLE, env=environment(directory), timeout=PATIENCE)


def celery(directory: Path, *words: str) -> warm.Process:
    return warm.Process(
        ["-m", "celery", "-A", "shop", *words],
        cwd=EXAMPLE,
        env=environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(process: warm.Process, patterns: list[str]) -> str:
    """What ``process`` says, up to the line with which the last of ``patterns`` is found."""
    said, deadline = "", SYSTEM_CLOCK.stopwatch() + PATIENCE
    assert process.stdout is not None
    while not all(re.search(pattern, said) for pattern in patterns):
        line = process.stdout.readline()
        assert line, said
        assert SYSTEM_CLOCK.stopwatch() < deadline, said
        said += line
    return said


def end(process: warm.Process) -> None:
    process.kill()
    process.communicate()


def test_a_worker_and_beat_of_the_example_run_the_tasks(tmp_path: Path) -> None:
    """Beat knows the schedule, and a worker runs each task that it is sent."""
    # Sent before the worker starts: the broker of files, which is kombu's, may be read while a
    # message is being written, and ends the worker then.
    sent = python(tmp_path, "-c", SEND, *TASKS)
    assert sent.returncode == 0, sent.stderr
    beat = celery(tmp_path, "beat", "-l", "debug")
    try:
        wait_for(beat, [rf"django_idgen\.tasks\.{task}" for task in TASKS])
    finally:
        end(beat)
    worker = celery(tmp_path, "worker", "-l", "info", "--pool", "solo")
    try:
        wait_for(worker, [rf"django_idgen\.tasks\.{task}\[[^]]*\] succeeded" for task in TASKS])
    finally:
        end(worker)


@pytest.mark.long
def test_a_busy_shop_sells(tmp_path: Path) -> None:
    """The task that compose's beat sends places orders."""
    for words in (["migrate", "-v0"], ["shell", "-v0", "-c", SELL]):
        done = python(tmp_path, "manage.py", *words)
        assert done.returncode == 0, done.stderr


def test_the_example_works_where_celery_is_not_installed(tmp_path: Path) -> None:
    """As a newcomer has it after ``pip install django-idgen``."""
    code = (
        "import sys; sys.modules['celery'] = None\n"
        "sys.argv = ['manage.py', 'check', '--fail-level', 'WARNING']\n"
        "import runpy; runpy.run_path('manage.py', run_name='__main__')"
    )
    done = python(tmp_path, "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr


# --- Docker is not at hand here, but what the compose file names is -----------


COMPOSE = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())


def test_the_files_that_it_mounts_and_copies_are_there() -> None:
    """Each path on the host's side of a volume, and each source in the Dockerfile."""
    volumes = [
        each for service in COMPOSE["services"].values() for each in service.get("volumes", ())
    ]
    assert len(volumes) == 5
    for volume in volumes:
        assert (EXAMPLE / volume.split(":")[0]).is_file(), volume
    copied = re.findall(r"^COPY (.+) \S+$", (EXAMPLE / "Dockerfile").read_text(), re.MULTILINE)
    for path in " ".join(copied).split():
        assert (EXAMPLE.parent / path).exists(), path


def test_the_settings_read_each_variable_that_it_sets() -> None:
    """A variable that nothing reads would be a slip."""
    text = "".join(path.read_text() for path in (EXAMPLE / "shop").glob("*.py"))
    for name in COMPOSE["x-shop"]["environment"]:
        assert name in text or name == "DJANGO_SUPERUSER_PASSWORD", name


def test_prometheus_sends_the_token_that_the_shop_wants() -> None:
    """Both files have the same secret."""
    scraped = yaml.safe_load((EXAMPLE / "monitoring" / "prometheus.yml").read_text())
    (job,) = scraped["scrape_configs"]
    token = COMPOSE["x-shop"]["environment"]["SHOP_METRICS_TOKEN"]
    assert job["authorization"]["credentials"] == token
