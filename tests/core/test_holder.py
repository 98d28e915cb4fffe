"""The label of a process: one for each process, and who comes back after a restart."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from django_idgen.core.layout import parse_layout
from django_idgen.core.lease import Namespace, identity_of, process_label
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryLeases
from tests.segment_tools import in_child

LAYOUT = parse_layout("standard")


def test_a_label_has_the_host_the_process_and_the_program() -> None:
    """Four workers of one host have four labels."""
    host = re.escape(socket.gethostname())
    assert re.fullmatch(rf"{host}:{os.getpid()} \S+", process_label())
    assert identity_of(process_label()) == socket.gethostname()


@pytest.mark.parametrize(
    ("ran", "name"),
    [(["bin/shop worker"], "shop worker"), (["-m", "shop"], "shop"), (["-c", ""], "python")],
)
def test_a_label_names_what_runs(ran: list[str], name: str, tmp_path: Path) -> None:
    """A script, a package that ``-m`` runs, and Python alone where there is no name."""
    code = "from django_idgen.core.lease import process_label; print(process_label())"
    for directory in ("bin", "shop"):
        (tmp_path / directory).mkdir()
    (tmp_path / "bin" / "shop worker").write_text(code)
    (tmp_path / "shop" / "__main__.py").write_text(code)
    done = subprocess.run(
        [sys.executable, *(code if word == "" else word for word in ran)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip().partition(" ")[2] == name


LABELS = {
    "web-1:4242 gunicorn": "web-1",
    '"shop" web-1:4242 my program': '"shop" web-1',
    '"a:1 b" web-1:4242 gunicorn': '"a:1 b" web-1',
    '"a:1 b" orders': '"a:1 b" orders',
    "::1:7 x": "::1",
    **{whole: whole for whole in ("web-1", "web-1:8000", "orders 3", "")},
    'cosid "shop" 10.0.0.1:80 x': 'cosid "shop" 10.0.0.1:80 x',
}


def test_what_stays_of_a_label_over_a_restart() -> None:
    """The host; all of a label that somebody chose, and of a CosId instance."""
    assert {label: identity_of(label) for label in LABELS} == LABELS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("chosen", ["", "orders-3"])
def test_the_child_of_a_fork_has_a_label_of_its_own(chosen: str) -> None:
    """The label names the child that holds the lease; one that somebody chose stays."""
    space = Namespace(
        "forks", LAYOUT.epoch_us, LAYOUT.tick_us, LAYOUT.max_ticks, range(8), 180_000, 10_000
    )
    label = chosen or process_label()
    generator = SnowflakeGenerator(LAYOUT, MemoryLeases(space), holder=label, background=False)
    generator.next_id()

    def work() -> list[int]:
        generator.forget()
        generator.next_id()
        holder = generator.keeper.holder
        return [holder == (chosen or process_label()), f":{os.getpid()} " in holder]

    assert in_child(work) == [True, not chosen]
    assert generator.keeper.holder == (chosen or process_label())
    generator.close()
