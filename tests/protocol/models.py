"""Running a model: ``spin`` writes a checker in C, ``gcc`` compiles it, and it walks all states."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
COMPILE = ("gcc", "-w", "-DSAFETY", "-DNOFAIR", "-DMEMLIM=12000")
DEPTH = 5_000_000


@dataclass(frozen=True, slots=True)
class Model:
    """A model with the bounds of one check. Frozen."""

    name: str
    file: str
    bounds: tuple[str, ...]
    """Sizes and numbers of faults, as ``NAME=value``."""
    is_long: bool = False

    def text(self) -> str:
        return (HERE / self.file).read_text(encoding="ascii")


@dataclass(frozen=True, slots=True)
class Walk:
    """What a check found. Frozen."""

    states: int
    violated: str
    """The assertion that does not hold; empty if all hold."""
    story: Sequence[str] = ()
    """The steps that lead to it, one text each."""


class Unfinished(Exception):
    """The checker did not see all states, or did not run at all."""


def walk(
    text: str, bounds: Sequence[str], *, shortest: bool = False, is_quick: bool = False
) -> Walk:
    """All states of the model ``text``. ``shortest``: look for the shortest story, which is slow.

    ``is_quick``: it ends soon, so the compiler need not work hard. Raises :class:`Unfinished`.
    """
    with TemporaryDirectory(prefix="idgen-model-") as directory:
        place = Path(directory)
        (place / "model.pml").write_text(text, encoding="ascii")
        given = [f"-D{bound}" for bound in bounds]
        _run(place, "spin", "-a", *given, "model.pml", must=True)
        breadth = ("-DBFS",) if shortest else ()
        _run(
            place,
            *COMPILE,
            "-O0" if is_quick else "-O2",
            *breadth,
            "-o",
            "walk",
            "pan.c",
            must=True,
        )
        said = _run(place, "./walk", "-n", "-E", f"-m{DEPTH}")
        for sign in ("max search depth too small", "out of memory", "hash table full"):
            if sign in said:
                raise Unfinished(f"The walk is not whole ({sign}): {said[-2000:]}")
        counted = re.search(r"(\S+) states, stored", said)
        if counted is None:
            raise Unfinished(f"The walk ended early: {said[-2000:]}")
        found = re.search(r"pan:1: (.*) \(at depth", said)
        story = _story(place, given) if found else ()
        return Walk(int(float(counted[1])), found[1] if found else "", story)


def _story(place: Path, given: Sequence[str]) -> Sequence[str]:
    told = _run(place, "spin", "-t", "-p", *given, "model.pml")
    steps = re.findall(r"proc +\d+ \((\w+):\d+\) \S+:(\d+) .*?\[(.*)\]", told)
    return [f"{who}, line {line}: {what}" for who, line, what in steps]


def _run(place: Path, *words: str, must: bool = False) -> str:
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if must and done.returncode:
        raise Unfinished(f"{' '.join(words)}: {said[-2000:]}")
    return said
