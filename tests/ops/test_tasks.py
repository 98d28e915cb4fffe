"""Upkeep of leases and history: by itself, by the command, and as Celery's tasks."""

from __future__ import annotations

import json
import os
import pickle
import pkgutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings
from django.utils import timezone

import django_idgen
from django_idgen import next_id, tasks
from django_idgen.core.errors import ConfigurationError, RegistryUnavailable, UpkeepFailed
from django_idgen.core.generator import Generator
from django_idgen.core.lease import Grant
from django_idgen.core.registry import Registry
from django_idgen.core.source import Source
from django_idgen.models import NamespaceRecord, SegmentHistory, WorkerLease
from django_idgen.ops.upkeep import prune_history, renew_worker_leases
from django_idgen.process import factory, lifecycle
from django_idgen.settings.config import SettingsError, read_settings
from django_idgen.testing.contracts.lenders import at_once
from tests.places import make_tables
from tests.server_tools import unreachable
from tests.upkeep_tools import (
    forget_redis,
    killed_while_waiting,
    leases_on,
    redis_leases_on,
    upkeep_on,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def alias(server_alias: str) -> Iterator[str]:
    """An empty database that lends the worker ids."""
    with upkeep_on(leases_on(server_alias)):
        yield server_alias


def acquire(name: str = "default") -> Grant:
    """A lease as another process holds it, which does nothing about it from now on."""
    registry = factory.build_registry(read_settings().generators[name])
    return registry.acquire(holder="web")  # type: ignore[no-any-return]


def rows(alias: str) -> Any:
    return WorkerLease.objects.using(alias)


# --- renew_worker_leases ----------------------------------------------------------


def test_renewal_moves_the_ends_and_takes_no_worker_id(alias: str) -> None:
    """All that is held goes on for a window from now, without the scheduler being seen."""
    ends = {lease.worker: lease.until for lease in (acquire().lease for _ in range(3))}
    seen = set(rows(alias).values_list("seen_at", flat=True))
    assert renew_worker_leases() == {"default": {"renewed": 3}}
    after = dict(rows(alias).values_list("worker", "until"))
    assert after.keys() == ends.keys()
    assert all(after[worker] > until for worker, until in ends.items())
    assert set(rows(alias).values_list("seen_at", flat=True)) == seen


def test_a_holder_that_was_not_seen_is_left_to_expire(server_alias: str) -> None:
    """After ``idle_after`` seconds, an option of LEASES: five windows unless told otherwise."""
    with upkeep_on(leases_on(server_alias)):
        kept, left = acquire().lease, acquire().lease
        for lease, ago in ((kept, 880), (left, 920)):
            seen = timezone.now() - timedelta(seconds=ago)
            rows(server_alias).filter(worker=lease.worker).update(seen_at=seen)
        assert renew_worker_leases() == {"default": {"renewed": 1}}
        assert rows(server_alias).get(worker=left.worker).until == left.until
    for idle_after, renewed in ((600, 1), (1000, 2)):
        with upkeep_on(leases_on(server_alias, idle_after=idle_after)):
            rows(server_alias).filter(worker=kept.worker).update(seen_at=timezone.now())
            assert renew_worker_leases() == {"default": {"renewed": renewed}}


def test_an_impossible_idle_after_is_refused() -> None:
    """It is no shorter than a window: a holder renews by itself only now and then."""
    for value in (179, 1_000_001, "15 min", None, True):
        with (
            override_settings(IDGEN=leases_on("default", idle_after=value)),
            pytest.raises(SettingsError, match=r"'idle_after'.* must be 180 to 1000000 seconds"),
        ):
            read_settings()


def test_two_runs_at_once_do_what_one_does(alias: str) -> None:
    """No end is lowered, and none moved by more than a window."""
    registry = factory.build_registry(read_settings().generators["default"])
    registry.acquire(holder="web")
    assert at_once(8, lambda _: renew_worker_leases()) == [{"default": {"renewed": 1}}] * 8
    until = rows(alias).get().until
    now = registry.acquire(holder="later").lease.start
    assert until <= now + registry.namespace.window_ticks


def test_a_run_that_is_killed_changes_nothing(alias: str) -> None:
    """SIGKILL while it waits for the namespace's row; the next one does it all."""
    lease = acquire().lease
    killed_while_waiting(
        alias,
        "from django_idgen.ops.upkeep import renew_worker_leases; renew_worker_leases()",
        "SELECT name FROM django_idgen_namespace FOR UPDATE",
    )
    assert rows(alias).get().until == lease.until
    assert renew_worker_leases() == {"default": {"renewed": 1}}


def test_a_namespace_that_nobody_uses_is_not_opened(alias: str) -> None:
    """The settings of an alias may still change after a scheduler came by."""
    assert renew_worker_leases() == {"default": {"renewed": 0}}
    assert not NamespaceRecord.objects.using(alias).exists()
    changed = leases_on(alias)
    changed["GENERATORS"]["default"]["LAYOUT"] = "uid"
    with upkeep_on(changed):
        assert acquire().lease.worker >= 0


def test_redis_is_renewed_and_goes_on_without_its_database(redis: str, postgres: str) -> None:
    """The ceiling stands ahead, and the task's process knows the installation."""
    with upkeep_on(redis_leases_on(redis, postgres)):
        assert renew_worker_leases() == {"default": {"renewed": 0}}
        make_tables(postgres)
        assert renew_worker_leases() == {"default": {"renewed": 0}}
        assert not NamespaceRecord.objects.using(postgres).exists()
        acquire()
        assert renew_worker_leases() == {"default": {"renewed": 1}}
        with unreachable(postgres):
            assert renew_worker_leases() == {"default": {"renewed": 1}}
        forget_redis(redis, postgres)


def test_one_alias_that_fails_keeps_no_other_from_renewal(alias: str) -> None:
    """The error comes at the end, with what was done; it can be pickled, as Celery does."""
    idgen = leases_on(alias)
    idgen["GENERATORS"] = {
        "dead": {"LEASES": {"BACKEND": "tests.ops.test_tasks.DeadLeases"}},
        "hosts": {
            "LEASES": {
                "BACKEND": "django_idgen.leases.static.StaticLeases",
                "OPTIONS": {"workers": [3, 4], "directory": "/tmp"},
            }
        },
        **idgen["GENERATORS"],
    }
    with upkeep_on(idgen):
        acquire()
        with pytest.raises(UpkeepFailed) as raised:
            renew_worker_leases()
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.done == {
        "default": {"renewed": 1},
        "dead": {"error": "RegistryUnavailable: nobody there"},
        "hosts": {"skipped": "its worker ids are not shared"},
    }
    assert "nobody there" in str(copy)
    assert isinstance(raised.value.__cause__, RegistryUnavailable)
    json.dumps(copy.done)


class DeadLeases(Registry):
    """A registry that can't be reached."""

    def __init__(self, namespace: Any) -> None:
        self.namespace = namespace

    def acquire(self, *_asked: Any, **_named: Any) -> Any:
        raise RegistryUnavailable("nobody there")

    renew = release = renew_seen = acquire

    def close(self) -> None:
        """Nothing is open."""


def test_a_changed_setting_counts_from_the_next_run_on(server_alias: str) -> None:
    """The registries that are kept are those of the settings as they are."""
    with upkeep_on(leases_on(server_alias)):
        acquire()
        assert renew_worker_leases() == {"default": {"renewed": 1}}
        other = leases_on(server_alias)
        other["GENERATORS"]["default"]["NAMESPACE"] = "another"
        with override_settings(IDGEN=other):
            assert renew_worker_leases() == {"default": {"renewed": 0}}
        assert renew_worker_leases() == {"default": {"renewed": 1}}


def test_the_child_of_a_fork_begins_anew(alias: str) -> None:
    """It uses nothing of its parent's, and renews as well."""
    acquire()
    assert renew_worker_leases() == {"default": {"renewed": 1}}
    lifecycle.forget_all()
    assert renew_worker_leases() == {"default": {"renewed": 1}}


# --- prune_history ------------------------------------------------------------------


def make_history(alias: str, *days: float) -> None:
    make_tables(alias)
    for start, ago in enumerate(days, 1):
        SegmentHistory.objects.using(alias).create(
            tag="tea", start=start, stop=start + 1, holder="web", taken_at=days_ago(ago)
        )


def days_ago(days: float) -> Any:
    return timezone.now() - timedelta(days=days)


@pytest.fixture
def archive(server_alias: str) -> Iterator[str]:
    """An empty database that segments come from."""
    with upkeep_on({"SEGMENTS": {"SOURCE": {"OPTIONS": {"database": server_alias}}}}):
        yield server_alias


def left(alias: str) -> list[int]:
    return sorted(SegmentHistory.objects.using(alias).values_list("start", flat=True))


def test_only_old_history_is_deleted(archive: str) -> None:
    """By default what is older than 90 days."""
    make_history(archive, 200, 91, 89, 0)
    assert prune_history() == {archive: {"deleted": 2}}
    assert left(archive) == [3, 4]
    assert prune_history(days=1) == {archive: {"deleted": 1}}
    assert prune_history(days=1) == {archive: {"deleted": 0}}


def test_history_is_pruned_in_a_project_without_time_zones(place: str, settings: Any) -> None:
    """On each kind of database, with ``USE_TZ = False``."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Shanghai"
    make_history(place, 91, 89)
    next_id()
    assert prune_history() == {place: {"deleted": 1}}
    assert left(place) == [2]


def test_pruning_twice_at_once_deletes_each_row_once(archive: str) -> None:
    """And fails for neither."""
    make_history(archive, *[100] * 40, 1)

    def run(_number: int) -> int:
        try:
            return int(prune_history()[archive]["deleted"])
        finally:
            connections[archive].close()

    assert sum(at_once(4, run)) == 40
    assert left(archive) == [41]


def test_pruning_that_is_killed_goes_on_the_next_time(archive: str) -> None:
    """SIGKILL while it waits for a row of its second batch: the first one is gone for good."""
    make_history(archive, 100, 100, 100, 1)
    third = SegmentHistory.objects.using(archive).get(start=3).pk
    killed_while_waiting(
        archive,
        "from functools import partial\n"
        "from django_idgen.sources import history\n"
        "from django_idgen.ops import upkeep\n"
        "history.prune_history = partial(history.prune_history, batch=2)\n"
        "upkeep.prune_history()",
        f"SELECT id FROM django_idgen_history WHERE id = {third} FOR UPDATE",
    )
    assert left(archive) == [3, 4]
    assert prune_history() == {archive: {"deleted": 1}}


def test_pruning_says_which_database_failed(archive: str) -> None:
    """After all others were done. A table that isn't there is not made for it."""
    assert prune_history() == {}
    assert connections[archive].introspection.table_names() == []
    with unreachable(archive), pytest.raises(UpkeepFailed) as raised:
        prune_history()
    assert "OperationalError" in raised.value.done[archive]["error"]


def test_an_impossible_number_of_days_is_refused() -> None:
    """Before anything is deleted."""
    days: Any
    for days in (-1, 36_501, "90", None, float("nan")):
        with pytest.raises(ConfigurationError, match="'days' must be 0 to 36500"):
            prune_history(days=days)


# --- the tasks ----------------------------------------------------------------------


def test_the_tasks_return_what_they_did(alias: str) -> None:
    """Run by Celery, under their full names; the results are JSON."""
    from celery import Celery

    make_tables(alias)
    app = Celery("shop", set_as_current=False)
    acquire()
    done = {
        entry["task"]: app.tasks[entry["task"]].apply().get()
        for entry in tasks.BEAT_SCHEDULE.values()
    }
    done = json.loads(json.dumps(done))
    pruned = done.pop("django_idgen.tasks.prune_history")
    # If another test made the table of the default database.
    assert pruned in ({}, {"default": {"deleted": 0}})
    assert done == {
        "django_idgen.tasks.renew_worker_leases": {"default": {"renewed": 1}},
        "django_idgen.tasks.preload_segments": {"pool": False, "tags": {}},
        "django_idgen.tasks.extend_native": {},
    }


def test_late_messages_expire_before_they_pile_up() -> None:
    """Under either scheduler: django-celery-beat drops what the schedule says of it."""
    for entry in tasks.BEAT_SCHEDULE.values():
        task = getattr(tasks, entry["task"].rpartition(".")[2])
        assert entry["options"]["expires"] == task.expires <= max(entry["schedule"], 10)
        assert 0 < task.soft_time_limit < task.time_limit


def test_leases_are_renewed_thrice_a_window() -> None:
    """By the shortest one, and once a minute at least; in whole seconds, if that is one or more.

    Settings that can't work are no matter of beat: it comes up, and the checks say what is wrong.
    """
    for windows, seconds in (([], 60), ([180, 30], 10), ([600], 60), ([10], 3), ([1.5], 0.5)):
        generators = {
            "default" if not number else f"g{number}": {"LEASES": {"OPTIONS": {"window": window}}}
            for number, window in enumerate(windows)
        }
        with override_settings(IDGEN={"GENERATORS": generators}):
            assert tasks.renewed_every() == seconds
    with override_settings(IDGEN={"GENERATORS": 7}):
        assert tasks.renewed_every() == 60


# --- with and without Celery ------------------------------------------------------------


def python(code: str, directory: Path, *, settings: str = "IDGEN = {}") -> str:
    """What a fresh process says whose project has ``settings``."""
    (directory / "project_settings.py").write_text(
        "SECRET_KEY = 'tests'\nUSE_TZ = True\nINSTALLED_APPS = ['django_idgen']\n"
        f"DATABASES = {{'default': {{'ENGINE': 'django.db.backends.sqlite3', "
        f"'NAME': {str(directory / 'db.sqlite3')!r}}}}}\n{settings}\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "project_settings",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}",
        },
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


NO_CELERY = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"celery", "kombu", "billiard"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
"""


def test_without_celery_everything_else_works(tmp_path: Path) -> None:
    """Ids, and upkeep by the command; another task queue may import all modules named tasks."""
    said = python(
        NO_CELERY
        + textwrap.dedent(
            """
            import django; django.setup()
            from django.core.management import call_command
            import django_idgen.tasks
            from django_idgen import next_id, segments
            call_command("migrate", verbosity=0)
            print(next_id() > 0, segments["tea"].next_id())
            call_command("idgen_upkeep")
            for name in ("BEAT_SCHEDULE", "renew_worker_leases"):
                try:
                    getattr(django_idgen.tasks, name)
                except Exception as error:
                    print(type(error).__name__, error)
            print(hasattr(django_idgen.tasks, "whatever"))
            """
        ),
        tmp_path,
    ).splitlines()
    assert said[:5] == [
        "True 1",
        'renew_worker_leases: {"default": {"renewed": 1}}',
        'preload_segments: {"pool": false, "tags": {}}',
        "extend_native: {}",
        'prune_history: {"default": {"deleted": 0}}',
    ]
    for name, line in zip(("BEAT_SCHEDULE", "renew_worker_leases"), said[5:7], strict=True):
        assert line.startswith(f"ConfigurationError django_idgen.tasks.{name} needs Celery: pip ")
    assert said[7] == "False"


def test_the_schedule_can_be_imported_by_the_settings_themselves(tmp_path: Path) -> None:
    """Before Django is set up, and with the windows that the settings have named so far."""
    windows = "IDGEN = {'GENERATORS': {'default': {'LEASES': {'OPTIONS': {'window': 30}}}}}"
    said = python(
        """
        import django; django.setup()
        from django.conf import settings
        print(settings.CELERY_BEAT_SCHEDULE["idgen-renew-worker-leases"]["schedule"])
        print(settings.LATER, settings.IDGEN["GENERATORS"].keys())
        """,
        tmp_path,
        settings=f"{windows}\nfrom django_idgen.tasks import BEAT_SCHEDULE\n"
        "CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}\nLATER = 'known'",
    )
    assert said.split() == ["10.0", "known", "dict_keys(['default'])"]


def dotted_names(base: type) -> set[str]:
    """Of all classes of django_idgen that derive from ``base``."""
    for module in pkgutil.walk_packages(django_idgen.__path__, "django_idgen."):
        if module.name.rpartition(".")[2] != "spectacular":
            import_module(module.name)
    found, left = set(), [base]
    while left:
        left += (below := left.pop().__subclasses__())
        found.update(f"{each.__module__}.{each.__qualname__}" for each in below)
    return {name for name in found if name.startswith("django_idgen.")}


def test_the_schedule_knows_the_windows_whatever_classes_the_settings_name(tmp_path: Path) -> None:
    """A project's celery.py reads it before the apps are ready, when no models can be imported."""
    (tmp_path / "mine.py").write_text("from django_idgen.models import LeafAlloc\n")
    named = {
        "generators": [*dotted_names(Generator), "mine.Generator"],
        "leases": [*dotted_names(Registry), "mine.Leases"],
        "sources": [*dotted_names(Source), "mine.Source"],
    }
    assert "django_idgen.contrib.sharding.source.TicketGenerator" in named["generators"]
    assert "django_idgen.sources.redis_incr.RedisIncrGenerator" in named["generators"]
    said = python(
        f"""
        from django.conf import settings
        from django_idgen import tasks
        named = {named!r}
        def seconds(segments={{}}, **entry):
            default = {{"LEASES": {{"OPTIONS": {{"window": 9}}}}}}
            settings.IDGEN = {{
                "GENERATORS": {{"default": default, "a": entry}}, "SEGMENTS": segments
            }}
            return tasks.renewed_every()
        for name in named["generators"]:
            assert seconds(BACKEND=name) == 3, name
            assert seconds(BACKEND=name, SOURCE={{"OPTIONS": {{"alias": "idgen"}}}}) == 3, name
        for name in named["leases"]:
            assert seconds(LEASES={{"BACKEND": name, "OPTIONS": {{"window": 6}}}}) == 2, name
        for name in named["sources"]:
            assert seconds({{"SOURCE": {{"BACKEND": name}}}}) == 3, name
        print("read")
        """,
        tmp_path,
    )
    assert said == "read\n"


def test_celery_finds_the_tasks_by_itself(tmp_path: Path) -> None:
    """``autodiscover_tasks()`` is enough."""
    said = python(
        """
        from celery import Celery
        app = Celery("shop")
        app.config_from_object("django.conf:settings", namespace="CELERY")
        app.autodiscover_tasks()
        app.loader.import_default_modules()
        print(sorted(name for name in app.tasks if name.startswith("django_idgen")))
        """,
        tmp_path,
    )
    names = ("extend_native", "preload_segments", "prune_history", "renew_worker_leases")
    assert said.strip() == str([f"django_idgen.tasks.{name}" for name in names])


def test_the_command_says_what_failed_and_does_the_rest(
    alias: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its exit status is that of a failure then, so that cron tells."""
    make_tables(alias)
    acquire()
    with pytest.raises(CommandError, match="preload_segments: An outage must be"):
        call_command("idgen_upkeep", "--outage", "-3")
    assert '"renewed": 1' in capsys.readouterr().out
