"""``python -m tests.django_suite [--database NAME] [label ...]``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import django

from tests import servers
from tests.django_suite.differences import DIFFERENCES, LABELS, Difference

ROOT = Path(__file__).resolve().parents[2]
PLAIN = "django.db.models.BigAutoField"
OURS = ("django_idgen.fields.SnowflakeAutoField", "django_idgen.fields.SegmentAutoField")
NOT_TO_BE_HAD = 3


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.django_suite", description=__doc__)
    parser.add_argument("labels", nargs="*", default=LABELS, help="of Django's tests")
    parser.add_argument(
        "--database", action="append", choices=["sqlite", "postgres"], help="default: both"
    )
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="django-suite-") as directory:
        suite = fetched(Path(directory))
        if suite is None:
            print(f"The sources of Django {django.__version__} can't be had here: not run.")
            return NOT_TO_BE_HAD
        wrong = sum(
            compared(suite, database, list(options.labels))
            for database in options.database or ["sqlite", "postgres"]
            if found(database)
        )
    print("Differences that nobody expected." if wrong else "Nothing differs but what is listed.")
    return 1 if wrong else 0


def found(database: str) -> bool:
    if database == "sqlite" or servers.is_open(database):
        return True
    print(f"No {database} server: not run there.")
    return False


def fetched(directory: Path) -> Path | None:
    """The folder of Django's tests, out of the source distribution of the installed version."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    command += ["--dest", str(directory), f"Django=={django.__version__}"]
    if subprocess.run(command, check=False).returncode:
        return None
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    (suite,) = directory.glob("*/tests/runtests.py")
    return suite.parent


def compared(suite: Path, database: str, labels: list[str]) -> int:
    """Print what differs on ``database``; how much of it is not as listed."""
    plain = outcome(suite, database, PLAIN, labels)
    return sum(
        unlisted(f"{database}, {kind}", plain, ours, listed(database, kind, labels))
        for kind, ours in (
            (field.rpartition(".")[2], outcome(suite, database, field, labels)) for field in OURS
        )
    )


def listed(database: str, kind: str, labels: list[str]) -> list[Difference]:
    return [
        difference
        for difference in DIFFERENCES
        if database in difference.databases
        and kind in difference.fields
        and any(label in difference.test for label in labels)
    ]


def unlisted(
    title: str, plain: dict[str, Any], ours: dict[str, Any], expected: list[Difference]
) -> int:
    """Print each test that fails in ``ours`` alone, with the reason; how many have none."""
    alone = ours["failed"].keys() - plain["failed"].keys()
    # Some of Django's tests measure time, of which a busy machine has none.
    failed = {name: ours["failed"][name] for name in alone if "performance" not in name}
    print(f"{title}: {ours['run']} tests ({plain['run']} with BigAutoField), {len(failed)} differ")
    wrong, met = 0, set()
    for name, how in sorted(failed.items()):
        reason = next((known for known in expected if known.explains(name, how)), None)
        print(f"  {name}: {reason.why if reason else f'NOT LISTED: {how}'}")
        met.add(reason)
        wrong += reason is None
    for difference in expected:
        if difference in met or difference.sometimes:
            continue
        print(f"  {difference.test}: LISTED, but it passes")
        wrong += 1
    # A class that can't be set up takes its tests with it, and is a difference by itself.
    stopped = any(name.startswith("setUpClass") for name in failed)
    if ours["run"] != plain["run"] and not stopped:
        print("  NOT ALL WERE RUN")
        wrong += 1
    return wrong


def outcome(suite: Path, database: str, field: str, labels: list[str]) -> dict[str, Any]:
    """How many tests ran with ``field`` as the default key, and which ones failed, and how."""
    report = suite / f"{database}-{field}.json"
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{suite}",
        "DJANGO_SETTINGS_MODULE": "tests.django_suite.settings",
        "SUITE_DATABASE": database,
        "SUITE_FIELD": field,
        "SUITE_REPORT": str(report),
    }
    command = [sys.executable, "-m", "tests.django_suite.child", *labels]
    subprocess.run(command, cwd=suite, env=environment, check=False)
    return dict(json.loads(report.read_text()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
