"""Configured worker ids keep the contract, and hold their locks as processes do."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_idgen.core import files
from django_idgen.core.errors import (
    ConfigurationError,
    LeaseLost,
    LeaseTaken,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
    WorkerOutOfRange,
)
from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.leases.static import StaticLeases
from django_idgen.testing.contracts import NAMESPACE, WINDOW, WORKERS, LeaseContract, Lender
from django_idgen.testing.contracts.lenders import START_US


class StaticLender(Lender):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def make(self, namespace: Namespace) -> Registry:
        return StaticLeases(
            namespace,
            workers=namespace.workers,
            directory=self.directory,
            read_now_us=self.time.read,
        )

    def forget(self) -> None:
        for mark in self.directory.glob("*.mark"):
            mark.unlink()

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        return partial(StaticLeases, namespace, workers=namespace.workers, directory=self.directory)


class TestStaticLeases(LeaseContract):
    frees_by_hand = False
    expires_while_held = False
    renews_for_others = False

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        with tempfile.TemporaryDirectory() as directory:
            yield StaticLender(Path(directory))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def one(directory: Path) -> Iterator[StaticLeases]:
    registry = StaticLeases(NAMESPACE, worker=3, directory=directory, read_now_us=lambda: START_US)
    yield registry
    registry.close()


def another(directory: Path, namespace: Namespace = NAMESPACE) -> StaticLeases:
    return StaticLeases(namespace, worker=3, directory=directory, read_now_us=lambda: START_US)


def test_one_worker_id_is_lent_once(one: StaticLeases, directory: Path) -> None:
    """The configured worker id is had by one; the next is told who could have it and how."""
    assert one.acquire(holder="a").lease.worker == 3
    with pytest.raises(LeaseTaken, match=r"Worker id 3 .*contract-3\.lock.*'workers'"):
        another(directory).acquire(holder="b")
    with pytest.raises(LeaseTaken):
        one.acquire(holder="a")


def test_a_worker_id_that_does_not_fit_is_refused(directory: Path) -> None:
    """A worker id outside the layout can't leak into its neighbours (hazard 9)."""
    worker: Any
    for worker in (WORKERS, -1, 2**40, "1", True, 1.0):
        for given in ({"worker": worker}, {"workers": (worker,)}):
            with pytest.raises(WorkerOutOfRange):
                StaticLeases(NAMESPACE, directory=directory, **given)


def test_an_impossible_choice_is_refused(directory: Path) -> None:
    """Neither, both, none, or scattered worker ids are named as errors."""
    wrong: dict[str, Any]
    for wrong in ({}, {"worker": 1, "workers": (1, 2)}, {"workers": ()}, {"workers": (0, 2)}):
        with pytest.raises(ConfigurationError, match=r"worker"):
            StaticLeases(NAMESPACE, directory=directory, **wrong)


def test_a_directory_that_is_missing_is_not_made(tmp_path: Path) -> None:
    """A mount that is not there must not look like a first start."""
    with pytest.raises(ConfigurationError, match="nowhere"):
        another(tmp_path / "nowhere").acquire(holder="a")
    assert not (tmp_path / "nowhere").exists()


def test_a_place_that_is_no_directory_is_named(tmp_path: Path) -> None:
    """A file where the directory should be is an error that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryUnavailable, match="file"):
        another(tmp_path / "file").acquire(holder="a")


def test_a_damaged_mark_is_no_fresh_start(one: StaticLeases, directory: Path) -> None:
    """A mark file that can't be read stops the worker id, and the message says what to do.

    Once the mark is mended the worker id can be had, also by another process.
    """
    one.release(one.acquire(holder="a").lease, last_tick=None)
    (mark,) = directory.glob("*.mark")
    sound = mark.read_text()
    for text in ("", "{", "[]", "7", '{"namespace": "contract"}', "\0" * 100, '"x"'):
        mark.write_text(text)
        with pytest.raises(RegistryUnavailable, match=r"contract-3\.mark.*delete the file"):
            one.acquire(holder="a")
    mark.write_text(sound)
    assert another(directory).acquire(holder="b").lease.worker == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"worker": 2}, "belongs to another worker id"), ({"protocol": 99}, "protocol 99")],
)
def test_a_mark_of_another_worker_id_is_not_believed(
    one: StaticLeases, directory: Path, wrong: dict[str, int], said: str
) -> None:
    """A mark file that was copied over another's is noticed, and one of a newer version."""
    one.release(one.acquire(holder="a").lease, last_tick=None)
    (mark,) = directory.glob("*.mark")
    mark.write_text(json.dumps({**json.loads(mark.read_text()), **wrong}))
    with pytest.raises(RegistryUnavailable, match=said):
        one.acquire(holder="a")


def test_a_damaged_lock_file_is_named(one: StaticLeases, directory: Path) -> None:
    """What should be a tick and is not is an error, not a zero."""
    one.release(one.acquire(holder="a").lease, last_tick=None)
    (lock,) = directory.glob("*.lock")
    lock.write_text("later")
    with pytest.raises(RegistryUnavailable, match=r"contract-3\.lock.*damaged"):
        one.acquire(holder="a")


def test_two_namespaces_in_one_directory_do_not_meet(directory: Path) -> None:
    """Namespaces whose names need changing for the file system still have files of their own."""
    names = ["a/b", "a_b", "a:b", "..", "é" * 128]
    leases = [
        another(directory, replace(NAMESPACE, name=name)).acquire(holder="x").lease
        for name in names
    ]
    assert {lease.namespace for lease in leases} == set(names)
    assert len(list(directory.glob("*.lock"))) == len(names)


def test_settings_that_differ_are_refused(one: StaticLeases, directory: Path) -> None:
    """The mark remembers the layout that it was counted in."""
    one.release(one.acquire(holder="a").lease, last_tick=None)
    changed = replace(NAMESPACE, fingerprint={"layout": []})
    with pytest.raises(NamespaceMismatch, match="layout"):
        another(directory, changed).acquire(holder="a")


def test_a_lock_file_that_was_replaced_is_a_loss(one: StaticLeases, directory: Path) -> None:
    """A holder whose lock file is gone notices it when it renews."""
    lease = one.acquire(holder="a").lease
    (lock,) = directory.glob("*.lock")
    lock.unlink()
    with pytest.raises(LeaseLost):
        one.renew(lease, last_tick=lease.start)
    new = another(directory).acquire(holder="b").lease
    assert new.start >= lease.until
    assert one.release(lease, last_tick=None) is False


def test_no_flock_no_static_leases(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the platform has no flock() the setting is refused."""
    monkeypatch.setattr(files, "fcntl", None)
    with pytest.raises(ConfigurationError, match="flock"):
        StaticLeases(NAMESPACE, worker=1, directory=directory)


def test_a_forked_child_neither_has_nor_frees_the_lock(one: StaticLeases, directory: Path) -> None:
    """The child's abandon leaves the parent's lock held; the child can't renew or release."""
    lease = one.acquire(holder="a").lease
    assert in_child(one.abandon) == "None"
    assert in_child(lambda: one.release(lease, last_tick=None)) == "False"
    assert in_child(lambda: one.renew(lease, last_tick=lease.start)) == "LeaseLost"
    assert in_child(lambda: one.acquire(holder="child")) == "LeaseTaken"
    with pytest.raises(LeaseTaken):
        another(directory).acquire(holder="b")
    assert one.release(lease, last_tick=None) is True


@pytest.mark.parametrize("hooks", [True, False])
def test_a_child_that_outlives_its_parent_lets_the_lock_go(directory: Path, hooks: bool) -> None:
    """What a fork inherits holds nothing once the child abandoned it or, without hooks, used it."""
    registry = another(directory)
    lease = registry.acquire(holder="parent").lease
    read, write = os.pipe()
    child = os.fork()
    if not child:
        registry.abandon() if hooks else registry.release(lease, last_tick=None)
        os.read(read, 1)
        os._exit(0)
    registry.close()
    try:
        # The parent's copy is closed; only the child's could still hold it.
        for _ in range(200):
            try:
                assert another(directory).acquire(holder="next").lease.worker == 3
                break
            except LeaseTaken:
                os.sched_yield()
                signal.sigtimedwait([], 0.01)
        else:
            pytest.fail("The child still holds the lock.")
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_a_killed_holder_frees_the_lock_but_not_its_window(directory: Path) -> None:
    """After SIGKILL the worker id is free at once, and starts at the old window's end."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        lease = another(directory).acquire(holder="killed").lease
        os.write(write, str(lease.until).encode())
        signal.pause()
    try:
        until = int(os.read(read, 100))
        with pytest.raises(LeaseTaken):
            another(directory).acquire(holder="early")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
    lease = another(directory).acquire(holder="next").lease
    assert lease.start == until == NAMESPACE.tick_at(START_US) + WINDOW


def test_twelve_processes_of_a_host_share_a_range(directory: Path) -> None:
    """Each of the registries takes a free id of the range; one more is refused."""
    namespace = replace(NAMESPACE, workers=range(1024))
    made = [
        StaticLeases(namespace, workers=range(100, 112), directory=directory) for _ in range(13)
    ]
    got = [registry.acquire(holder=f"w{n}").lease.worker for n, registry in enumerate(made[:12])]
    assert sorted(got) == list(range(100, 112))
    with pytest.raises(NoFreeWorker) as caught:
        made[12].acquire(holder="w12")
    assert caught.value.workers == range(100, 112)
    for registry in made:
        registry.close()


def in_child(job: Callable[[], object]) -> str:
    """``job()`` in a forked child: its result as text, or the name of its exception."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = str(job())
        except BaseException as error:
            said = type(error).__name__
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
