"""Leases kept in files of the host: the contract, and what a restart makes of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import pytest

from django_idgen.core.clock import SYSTEM_CLOCK, Clock
from django_idgen.core.errors import (
    ClockSkewed,
    ConfigurationError,
    LeaseLost,
    RegistryUnavailable,
)
from django_idgen.core.events import Outbox
from django_idgen.core.keeper import LeaseKeeper
from django_idgen.core.lease import Grant, Lease, Namespace
from django_idgen.core.registry import Registry
from django_idgen.db.connection import OwnConnection
from django_idgen.leases.checkpointed import CheckpointedLeases
from django_idgen.leases.memory import MemoryLeases, MemoryMarks
from django_idgen.testing.contracts import NAMESPACE, WINDOW, DrivenTime, LeaseContract, Lender
from tests import warm
from tests.leases.server.shop import ServerLeases
from tests.places import make_tables
from tests.segment_tools import in_child
from tests.servers import fast_directory

from .test_memory import MemoryLender

MS = 1_000_000
"""Nanoseconds of a tick."""
AHEAD = 30
"""Ticks that a mark is ahead, where it is written every 10."""


class OwnHosts(MemoryLender):
    """Each registry as a process of a host of its own, so that nothing is resumed."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = Path(directory)
        self._hosts = 0

    def make(self, namespace: Namespace) -> Registry:
        self._hosts += 1
        own = self._directory / str(self._hosts)
        own.mkdir()
        return CheckpointedLeases(namespace, registry=super().make(namespace), directory=own)


class TestCheckpointedLeases(LeaseContract):
    """With marks as far ahead as the window is long."""

    shared_by_processes = False
    acquirers = 16

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        with TemporaryDirectory(dir=fast_directory()) as directory:
            yield OwnHosts(directory)


# --- one host -------------------------------------------------------------------------


class Switched(MemoryLeases):
    """A registry that can be away; it counts how often it was asked."""

    away = False
    asked = 0

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        type(self).asked += 1
        self._answer()
        return super().renew(lease, last_tick=last_tick)

    def acquire(self, **options: Any) -> Grant:
        self._answer()
        return super().acquire(**options)

    def _answer(self) -> None:
        if type(self).away:
            raise RegistryUnavailable("The registry is away.")


class Host:
    """Processes of one host, whose clock and registry the test drives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.time = DrivenTime()
        self.marks = MemoryMarks()
        self.elapsed_ns = 0
        self.wall_offset_us = 0
        Switched.away, Switched.asked = False, 0
        self._made: list[CheckpointedLeases] = []

    def clock(self) -> Clock:
        return Clock(
            elapsed_ns=lambda: self.elapsed_ns,
            wall_ns=lambda: (self.time.now_us + self.wall_offset_us) * 1000,
            stopwatch=lambda: self.elapsed_ns / 1e9,
            sleep=lambda seconds: None,
        )

    def process(self, namespace: Namespace = NAMESPACE, **options: Any) -> CheckpointedLeases:
        inner = Switched(
            namespace, marks=self.marks, read_now_us=self.time.read, clock=self.clock()
        )
        made = CheckpointedLeases(
            namespace,
            registry=inner,
            **{"directory": self.directory, "every": 0.01, "clock": self.clock(), **options},
        )
        self._made.append(made)
        return made

    def pass_ticks(self, ticks: int) -> None:
        self.time.pass_ticks(ticks)
        self.elapsed_ns += ticks * MS

    @property
    def now(self) -> int:
        return NAMESPACE.tick_at(self.time.now_us)

    def away(self) -> None:
        Switched.away = True

    def back(self) -> None:
        Switched.away = False

    def close(self) -> None:
        for made in self._made:
            made.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def end(process: CheckpointedLeases) -> None:
    """As SIGKILL does."""
    process.close()


def test_a_process_may_stamp_up_to_its_mark_and_no_further(host: Host) -> None:
    """The lease that the holder sees ends there; each renewal writes the next one."""
    process = host.process()
    lease = process.acquire(holder="a").lease
    assert (lease.start, lease.until) == (host.now, host.now + AHEAD)
    host.pass_ticks(10)
    renewed = process.renew(lease, last_tick=lease.start).lease
    assert renewed == replace(lease, until=host.now + AHEAD)
    assert process.end_of(lease) == lease.start + WINDOW
    (path,) = host.directory.glob("*.lease")
    assert json.loads(path.read_text())["mark"] == renewed.until
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_registry_is_asked_at_a_third_of_its_own_window(host: Host) -> None:
    """Not each time that a mark is written; at first a little earlier, at random."""
    process = host.process()
    lease = process.acquire(holder="a").lease
    for _ in range(60):
        host.pass_ticks(10)
        process.ask_in_background()
        lease = process.renew(lease, last_tick=host.now).lease
    assert 1 <= Switched.asked <= 2
    assert process.end_of(lease) > host.now + WINDOW // 2


def test_a_killed_process_goes_on_under_its_worker_id_from_its_mark(host: Host) -> None:
    """I1: past whatever it can have stamped, and in the same lease."""
    first = host.process()
    lease = first.acquire(holder="a").lease
    host.pass_ticks(10)
    lease = first.renew(lease, last_tick=host.now).lease
    end(first)
    resumed = host.process().acquire(holder="b").lease
    assert (resumed.worker, resumed.token) == (lease.worker, lease.token)
    assert resumed.start == lease.until


@pytest.mark.parametrize("away", [False, True])
def test_a_resumed_lease_begins_past_what_the_process_has_stamped(
    host: Host, *, away: bool
) -> None:
    """Its own last tick counts beside the mark, whether the registry answers or not."""
    first = host.process()
    lease = first.acquire(holder="a").lease
    end(first)
    if away:
        host.away()
    second = host.process()
    resumed = second.acquire(holder="b", not_before=lease.until + 7).lease
    assert (resumed.token, resumed.start) == (lease.token, lease.until + 7)
    assert resumed.start < resumed.until


def test_a_window_that_is_used_up_is_not_resumed(host: Host) -> None:
    """A lease without a tick would be none: a new one is lent."""
    first = host.process()
    lease = first.acquire(holder="a").lease
    whole = first.end_of(lease)
    end(first)
    host.pass_ticks(whole - host.now)
    resumed = host.process().acquire(holder="b", not_before=whole + WINDOW).lease
    assert whole + WINDOW <= resumed.start < resumed.until


def test_a_mark_is_on_the_disk_before_it_counts(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file is synced before it takes the place of the old one, and the directory after."""
    done: list[str] = []
    fsync, replaced = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def noted_replace(source: Path, target: Path) -> None:
        assert done[-1] == str(source)
        replaced(source, target)
        done.append("replaced")

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    process = host.process()
    lease = process.acquire(holder="a").lease
    host.pass_ticks(10)
    done.clear()
    process.renew(lease, last_tick=host.now)
    assert done.index("replaced") < done.index(str(host.directory))


def test_a_restart_needs_no_registry_while_the_window_lasts(host: Host) -> None:
    """Leaf's weak dependency: again and again, until it is over; then an error says so."""
    process = host.process()
    first = lease = process.acquire(holder="a").lease
    host.away()
    for _ in range(5):
        end(process)
        host.pass_ticks(100)
        process = host.process()
        following = process.acquire(holder="a").lease
        assert following.worker == lease.worker
        assert lease.until <= following.start < following.until <= first.start + WINDOW
        lease = following
    end(process)
    host.pass_ticks(WINDOW)
    with pytest.raises(RegistryUnavailable, match=r"is over: .*away.*longer 'window'"):
        host.process().acquire(holder="a")
    host.back()
    assert host.process().acquire(holder="a").lease.start >= lease.until


def test_a_running_process_goes_on_to_the_end_of_its_window(host: Host) -> None:
    """While the registry is away marks are still written; past the window nothing is lent."""
    process = host.process()
    lease = process.acquire(holder="a").lease
    whole = process.end_of(lease)
    host.away()
    while host.now < whole - 1:
        host.pass_ticks(min(10, whole - 1 - host.now))
        process.ask_in_background()
        lease = process.renew(lease, last_tick=host.now).lease
        assert lease.until <= whole
    assert lease.until == whole
    host.pass_ticks(10)
    with pytest.raises(RegistryUnavailable, match="did not renew it"):
        process.renew(lease, last_tick=whole)
    host.back()
    host.pass_ticks(WINDOW)
    process.ask_in_background()
    assert process.renew(lease, last_tick=host.now).lease.until > host.now


def test_a_lease_that_was_given_back_is_not_resumed(host: Host) -> None:
    """L3: the file says so before the registry does, and frees no tick of an earlier process."""
    first = host.process()
    lease = first.acquire(holder="a").lease
    end(first)
    second = host.process()
    resumed = second.acquire(holder="a").lease
    assert second.release(resumed, last_tick=None) is True
    host.away()
    with pytest.raises(RegistryUnavailable, match="away"):
        host.process().acquire(holder="a")
    host.back()
    one = replace(NAMESPACE, workers=range(lease.worker, lease.worker + 1))
    following = host.process(one).registry.acquire(holder="c").lease
    assert following.worker == lease.worker
    assert following.start >= lease.until


def test_a_lease_that_the_registry_gave_to_another_is_not_resumed(host: Host) -> None:
    """Hazard 10: a new one is lent instead; and a running holder is told."""
    first = host.process()
    lease = first.acquire(holder="a").lease
    assert host.marks.book(NAMESPACE.name).void(lease.worker, lease.token)
    end(first)
    second = host.process()
    following = second.acquire(holder="b").lease
    assert following.token != lease.token
    assert host.marks.book(NAMESPACE.name).void(following.worker, following.token)
    host.pass_ticks(WINDOW // 2)
    second.ask_in_background()
    with pytest.raises(LeaseLost):
        second.renew(following, last_tick=host.now)


def test_processes_of_a_host_have_a_file_each(host: Host) -> None:
    """Those that run are left alone; all that ended are gone on with, in whatever order."""
    running = [host.process() for _ in range(3)]
    leases = [process.acquire(holder="a").lease for process in running]
    assert len({lease.worker for lease in leases}) == 3
    for process in running[:2]:
        end(process)
    host.away()
    again = [host.process().acquire(holder="a").lease for _ in range(2)]
    assert {lease.worker for lease in again} == {lease.worker for lease in leases[:2]}
    with pytest.raises(RegistryUnavailable):
        host.process().acquire(holder="a")


def test_what_concerns_the_registry_goes_on_to_it(host: Host) -> None:
    """Its database and servers, who holds what, the hosts that it lends to, and its end."""
    process = host.process()
    process.registry = registry = Mock(spec=MemoryLeases)
    for name in ("installation", "stored_book", "probes"):
        assert getattr(process, name)() is getattr(registry, name).return_value
    assert process.inspect([3]) is registry.inspect.return_value
    assert process.free(3) is registry.free.return_value
    for name in ("lend_on", "check_access", "abandon", "close"):
        getattr(process, name)()
        getattr(registry, name).assert_called_once_with()


def test_a_forked_child_neither_has_nor_resumes_its_parents_lease(host: Host) -> None:
    """I5: the lock stays the parent's, whatever the child closes."""
    process = host.process()
    lease = process.acquire(holder="a").lease

    def work() -> list[int]:
        process.abandon()
        found = host.process().acquire(holder="child").lease
        return [found.worker != lease.worker, found.token != lease.token]

    assert in_child(work) == [True, True]
    assert process.renew(lease, last_tick=lease.start).lease.token == lease.token


# --- what can't be trusted ------------------------------------------------------------------


def put_back(host: Host, before: Path, *, inode: bool) -> None:
    """An older state of the files, as from a backup."""
    for path in before.iterdir():
        target = host.directory / path.name
        if inode:
            target.write_bytes(path.read_bytes())
        else:
            target.unlink(missing_ok=True)
            shutil.copy2(path, target)


@pytest.mark.parametrize("inode", [True, False], ids=["written over", "another file"])
def test_an_older_state_of_the_files_is_not_resumed(
    host: Host, tmp_path_factory: pytest.TempPathFactory, inode: bool
) -> None:
    """I1: its process came further than it says."""
    process = host.process()
    lease = process.acquire(holder="a").lease
    before = tmp_path_factory.mktemp("backup")
    shutil.copytree(host.directory, before, dirs_exist_ok=True)
    for _ in range(5):
        host.pass_ticks(10)
        lease = process.renew(lease, last_tick=host.now).lease
    end(process)
    put_back(host, before, inode=inode)
    host.away()
    with pytest.raises(RegistryUnavailable):
        host.process().acquire(holder="a")
    host.back()
    following = host.process().acquire(holder="a").lease
    assert following.worker != lease.worker or following.start >= lease.until


def test_a_copied_directory_is_not_resumed(
    host: Host, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two would go on with one lease."""
    process = host.process()
    process.acquire(holder="a")
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(host.directory, copy, dirs_exist_ok=True)
    end(process)
    host.away()
    with pytest.raises(RegistryUnavailable):
        host.process(directory=copy).acquire(holder="a")
    assert host.process().acquire(holder="a")


def test_another_layout_is_not_resumed(host: Host) -> None:
    """Its ticks are others."""
    process = host.process()
    process.acquire(holder="a")
    end(process)
    host.away()
    moved = replace(NAMESPACE, fingerprint={"layout": "another"})
    with pytest.raises(RegistryUnavailable):
        host.process(moved).acquire(holder="a")


def cut_short(path: Path) -> None:
    path.write_text(path.read_text()[:40])


def of_another_host(path: Path) -> None:
    path.write_text(path.read_text().replace(json.dumps(socket.gethostname()), '"db-9"'))


def out_of_bounds(path: Path) -> None:
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "mark": 2**50}))


def newer(path: Path) -> None:
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "protocol": 99}))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (cut_short, r"is damaged.*Delete it"),
        (lambda path: path.write_text(""), r"is damaged.*Delete it"),
        (lambda path: path.write_text("[]"), r"is damaged.*Delete it"),
        (out_of_bounds, r"is damaged.*outside the lease"),
        (newer, r"another version .* protocol 99"),
        (of_another_host, r"to another host, 'db-9'.*directory of its own"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(
    host: Host, harm: Callable[[Path], object], said: str
) -> None:
    """With its path and the way out, which works; nothing is lent by it."""
    process = host.process()
    lease = process.acquire(holder="a").lease
    end(process)
    (path,) = host.directory.glob("*.lease")
    harm(path)
    with pytest.raises(RegistryUnavailable, match=said) as caught:
        host.process().acquire(holder="a")
    assert str(path) in str(caught.value)
    path.unlink()
    following = host.process().acquire(holder="a").lease
    assert following.worker != lease.worker or following.start >= lease.until


def test_a_directory_that_is_not_there_is_refused(host: Host, tmp_path: Path) -> None:
    """At the first lease, with what to do; the registry is not asked for one in vain."""
    with pytest.raises(ConfigurationError, match=r"away.*does not exist.*Make"):
        host.process(directory=tmp_path / "away").acquire(holder="a")


def test_a_directory_without_the_right_to_write_is_refused() -> None:
    """With what to do, and for a user who is not root; the lease of the file is untouched."""
    with TemporaryDirectory(dir=fast_directory()) as directory:
        host = Host(Path(directory))
        process = host.process()
        process.acquire(holder="a")
        end(process)
        for path in [*host.directory.iterdir(), host.directory]:
            path.chmod(0o555)
        user = os.geteuid()
        try:
            os.seteuid(user or 65534)
            with pytest.raises(ConfigurationError, match=r"may not write.*Give the user that"):
                host.process().acquire(holder="a")
        finally:
            os.seteuid(user)
            host.directory.chmod(0o755)
        host.close()


def test_a_full_disk_lends_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark that is not on the disk does not count; the next call goes on."""
    process = host.process()
    lease = process.acquire(holder="a").lease
    host.pass_ticks(10)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RegistryUnavailable, match="No space left"):
            process.renew(lease, last_tick=host.now)
    assert process.renew(lease, last_tick=host.now).lease.until == host.now + AHEAD
    (path,) = host.directory.glob("*.lease")
    assert json.loads(path.read_text())["mark"] == host.now + AHEAD


def test_a_lock_file_that_was_deleted_is_noticed(host: Host) -> None:
    """Another process may have the file by now: this one writes no mark, and gives out nothing."""
    process = host.process()
    lease = process.acquire(holder="a").lease
    for path in host.directory.glob("*.lock"):
        path.unlink()
    host.pass_ticks(10)
    with pytest.raises(RegistryUnavailable, match="was deleted or replaced"):
        process.renew(lease, last_tick=host.now)


# --- clocks -----------------------------------------------------------------------------


def on_server(alias: str, directory: Path, ahead_s: float) -> CheckpointedLeases:
    """A process of a host whose wall clock is so far ahead."""
    directory.mkdir(exist_ok=True)
    clock = replace(SYSTEM_CLOCK, wall_ns=lambda: SYSTEM_CLOCK.wall_ns() + int(ahead_s * 1e9))
    space = replace(NAMESPACE, workers=range(8), skew_ticks=100_000)
    registry = ServerLeases(space, alias=alias, own=OwnConnection(alias), clock=clock)
    return CheckpointedLeases(
        space, registry=registry, directory=directory, skew_limit=5, clock=clock
    )


def test_a_clock_far_from_the_others_gets_no_lease(postgres: str, tmp_path: Path) -> None:
    """Leaf's check, against the mean of what the other holders reported (hazard 16).

    The first one has nobody to be compared with; one that is refused keeps no worker id.
    """
    make_tables(postgres)
    made = [on_server(postgres, tmp_path / str(number), 60.0) for number in range(3)]
    leases = [each.acquire(holder="a").lease for each in made]
    off = on_server(postgres, tmp_path / "off", 53.0)
    told: list[dict[str, Any]] = []
    outbox = Outbox(lambda _, **values: told.append(values))
    keeper = LeaseKeeper(off, holder="a", skew_limit_us=10**9, outbox=outbox, background=False)
    with pytest.raises(ClockSkewed, match=r"-[67]\.\d+ s off the mean of the 3 other holders"):
        keeper.acquire()
    outbox.send()
    (alarm,) = told
    assert alarm["source"] == "holders"
    assert -8_000_000 < alarm["offset_us"] < -6_000_000
    assert len(off.registry.held_by("a")) == 3
    near = on_server(postgres, tmp_path / "near", 58.0)
    assert near.acquire(holder="a").lease.worker not in {lease.worker for lease in leases}
    for each in (*made, off, near):
        each.close()


# --- real processes ---------------------------------------------------------------------


PROJECT = """
import os, signal, sys
import django
from django.conf import settings
directory = sys.argv[1]
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": directory + "/db"}},
    INSTALLED_APPS=["django_idgen"],
    USE_TZ=True,
    IDGEN={"GENERATORS": {"default": {
        "LEASES": {
            "BACKEND": "django_idgen.leases.checkpointed.CheckpointedLeases",
            "OPTIONS": {"directory": directory, "registry": {}},
        },
    }}},
)
django.setup()
if sys.argv[2] == "migrate":
    from django.core.management import call_command
    call_command("migrate", verbosity=0)
from django_idgen import checks, generators
assert checks.check_settings() == []
generator = generators["default"]
print(*generator.next_ids(5000), generator.stats().lease.worker, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_starts_again_while_the_database_is_down(tmp_path: Path) -> None:
    """Under its worker id, past all that it gave out, by its file alone."""

    def run(word: str) -> tuple[list[int], int]:
        done = warm.run(["-c", PROJECT, str(tmp_path), word], cwd=tmp_path)
        assert done.returncode == -signal.SIGKILL, done.stderr
        *ids, worker = map(int, done.stdout.split())
        return ids, worker

    first, worker = run("migrate")
    (tmp_path / "db-idgen").unlink()
    (tmp_path / "db-idgen").mkdir()
    for _ in range(2):
        second, again = run("down")
        assert again == worker
        assert second[0] > first[-1]
        first = second
