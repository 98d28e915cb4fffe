"""The example project's Celery application, as it comes: without any broker."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

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
