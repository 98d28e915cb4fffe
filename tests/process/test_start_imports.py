"""What a process imports when it starts, and what the first id adds."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Sequence

import pytest

from tests import tiers, warm

APPS_OF_ADMIN = ("admin", "auth", "contenttypes", "messages", "sessions")
ADMIN = [f"django.contrib.{name}" for name in APPS_OF_ADMIN]
ADAPTERS = ("django_idgen.leases", "django_idgen.sources")

START = """
import os, sys, threading, time
import django
django.setup()
ours = {name for name in sys.modules if name.split(".")[0] == "django_idgen"}
"""


def run(
    code: str,
    engine: str = "sqlite3",
    apps: Sequence[str] = (),
    before: str = "",
    cold: bool = True,
) -> str:
    """What a process of the sample project prints that starts between ``before`` and ``code``."""
    database = {"ENGINE": f"django.db.backends.{engine}", "NAME": ":memory:"}
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "project_settings",
        "PYTHONPATH": os.pathsep.join([warm.FOLDER, f"{warm.FOLDER}/tests/projects"]),
        "SHOP_DATABASES": json.dumps({"default": database}),
        "SHOP_APPS": " ".join(apps),
    }
    code = before + START + textwrap.dedent(code)
    done = warm.run(["-c", code], cwd=warm.FOLDER, env=environment, cold=cold)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("engine", ["sqlite3", *tiers.long("postgresql")])
def test_models_with_our_fields_need_few_modules(engine: str) -> None:
    """A process that only has models imports what fields need; it begins nothing."""
    found = run("print(*sorted(ours)); assert threading.active_count() == 1", engine).split()
    assert "django_idgen.fields.base" in found
    assert len(found) <= 30, found
    assert not {name for name in found if name.startswith(ADAPTERS)}


def test_the_admin_needs_few_more() -> None:
    """What reads ids, forecasts consumption or lends is imported when a page needs it."""
    found = run("print(*sorted(ours))", apps=ADMIN).split()
    assert "django_idgen.admin.workers" in found
    assert len(found) <= 51, found
    assert not {name for name in found if name.startswith(ADAPTERS)}


def test_a_child_has_what_the_settings_name() -> None:
    """It is imported before a fork, once for all children."""
    run("""
        child = os.fork()
        if not child:
            named = {"leases.database", "sources.database", "core.snowflake"}
            os._exit(not {f"django_idgen.{name}" for name in named} <= sys.modules.keys())
        assert os.waitpid(child, 0)[1] == 0
    """)


def test_a_fork_during_the_first_id_finds_no_import_under_way() -> None:
    """The child would wait for an import lock whose thread it does not have."""
    run("""
        under_way, forking = threading.Event(), threading.Event()

        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == "django_idgen.core.snowflake" and not under_way.is_set():
                    under_way.set()
                    forking.wait()
                    time.sleep(0.5)  # a fork that does not wait is over by then

        sys.meta_path.insert(0, Slow())
        first = threading.Thread(target=__import__, args=["django_idgen.core.snowflake"])
        first.start()
        under_way.wait()
        os.register_at_fork(before=forking.set)  # the last one is called first
        child = os.fork()
        if not child:
            import signal
            signal.alarm(20)
            import django_idgen.core.snowflake
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        first.join()
    """)


UWSGI = """
import os, sys, types
master = types.ModuleType("uwsgi")
master.worker_id, master.masterpid = (lambda: 0), os.getpid
sys.modules["uwsgi"] = master
"""


def test_a_master_of_uwsgi_has_what_the_settings_name() -> None:
    """It forks without calling Python's hooks, so that it imports all when it starts."""
    run('assert "django_idgen.leases.database" in ours', before=UWSGI)


def test_urls_without_rest_framework_name_the_extra() -> None:
    """What has to be installed, instead of the module that was not found."""
    said = run(
        """
        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name == "rest_framework":
                    raise ModuleNotFoundError("No module named " + name, name=name)

        sys.meta_path.insert(0, Absent())
        for module in ("rest.urls", "contrib.old_servers.leaf"):
            try:
                __import__(f"django_idgen.{module}")
            except Exception as error:
                print(type(error).__name__, error)
        """,
        cold=False,
    )
    for line, package in zip(said.splitlines(), ("rest.urls", "contrib.old_servers"), strict=True):
        start = f"ConfigurationError django_idgen.{package} needs Django REST framework"
        assert line.startswith(start)
        assert "pip install 'django-idgen[drf]'" in line
