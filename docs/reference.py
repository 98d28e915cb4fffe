"""Write the pages of reference that come from the code: ``python docs/reference.py [FOLDER]``.

It needs Django and the extras of the test environment. ``tests/test_docs.py`` checks that the
pages in docs/ are what this script writes.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import logging
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import django
from django.conf import settings
from django.utils.module_loading import import_string

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
settings.configure(INSTALLED_APPS=["django_idgen"], USE_TZ=True)
django.setup()

from django_idgen import checks, signals  # noqa: E402
from django_idgen.core import errors  # noqa: E402
from django_idgen.ops import doctor  # noqa: E402
from django_idgen.ops.metrics import definitions  # noqa: E402
from django_idgen.process.tags import TagUnknown  # noqa: E402
from django_idgen.settings import SettingsError, config  # noqa: E402
from tests.hazards import HAZARDS, tests_of  # noqa: E402
from tests.ops.metrics.samples import listed  # noqa: E402

REGISTRIES = (
    "django_idgen.leases.database.DatabaseLeases",
    "django_idgen.leases.redis.RedisLeases",
    "django_idgen.leases.zookeeper.ZooKeeperLeases",
    "django_idgen.leases.checkpointed.CheckpointedLeases",
    "django_idgen.leases.static.StaticLeases",
    "django_idgen.leases.disposable.DisposableLeases",
    "django_idgen.leases.http.HttpLeases",
    "django_idgen.leases.memory.MemoryLeases",
)
SOURCES = (
    "django_idgen.sources.database.DatabaseSource",
    "django_idgen.sources.pool.PoolSource",
    "django_idgen.contrib.sharding.ShardedSource",
    "django_idgen.sources.http.HttpSource",
    "django_idgen.sources.memory.MemorySource",
    "django_idgen.sources.file.FileSource",
    "django_idgen.sources.redis_incr.RedisIncrSource",
)
GENERATORS = (
    "django_idgen.core.snowflake.SnowflakeGenerator",
    "django_idgen.core.buffered.BufferedGenerator",
    "django_idgen.core.one_time.OneTimeGenerator",
)
OF_THE_APP = {"default_step", "clock", "emit", "own", "read_now_us", "marks", "end"}
"""Arguments that the app gives, or tests. So it is with those that stand before the ``*``."""
NESTED = {"Registry": "`DatabaseLeases`", "Source": "`DatabaseSource`"}
"""Defaults of options that are settings of another registry or source."""
GENERATED = "<!-- Made by docs/reference.py: change the code, then run it. -->"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{value:_}`" if type(value) is int else f"`{value!r}`"


def _backend(path: str) -> Iterator[str]:
    backend = import_string(path)
    options = [
        (f"`{each.name}`", NESTED.get(str(each.annotation), _default(each.default)))
        for each in inspect.signature(backend).parameters.values()
        if each.kind is each.KEYWORD_ONLY and each.name not in OF_THE_APP
    ]
    yield from (f"### {backend.__name__}", "", f"`{path}`", "")
    if options:
        yield from _table(("option", "default"), options)
    else:
        yield from ("It has no options of its own.", "")


def _fields(found: type) -> Iterator[tuple[str, str, str]]:
    """Each field of a class of settings, with its default and its docstring."""
    body = ast.parse(textwrap.dedent(inspect.getsource(found))).body[0].body  # type: ignore
    defaults = found()
    words = {}
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            words[field.target.id] = " ".join(after.value.value.split())  # type: ignore
    for name, text in words.items():
        yield f"`{name}`", _default(getattr(defaults, name)), text.replace("``", "`")


def settings_page() -> str:
    """Return the page of all settings with their defaults."""
    segments = config.read_settings().segments
    generator = config.read_settings().generators["default"]
    options = ((name, getattr(segments, name)) for name in config.SEGMENT_OPTIONS)
    lines = [
        "# Settings and their defaults",
        "",
        GENERATED,
        "",
        "For a look-up: all options and their defaults. [Settings](settings.md) explains them, and "
        "has examples. Durations are in seconds. `None` often stands for a default that depends "
        "on others, such as two windows: it is named there.",
        "",
        "## Generators",
        "",
        '`IDGEN["GENERATORS"][alias]`, with `BACKEND`, `NAMESPACE`, `LAYOUT`, `EPOCH`, `LEASES` '
        "and `OPTIONS`. Generators of segment ids have the options of [segments](#segments), and "
        "`tag`, by default the alias; `SerialGenerator` also has `worker` (0).",
        "",
        *(line for path in GENERATORS for line in _backend(path)),
        "## Registries",
        "",
        '`IDGEN["GENERATORS"][alias]["LEASES"]`, with `BACKEND` and `OPTIONS`. '
        "All of them also take:",
        "",
        *_table(
            ("option", "default"),
            [
                ("`window`", _default(generator.window)),
                ("`idle_after`", f"{config.IDLE_WINDOWS} windows"),
                ("`workers`", "the whole range of the layout"),
            ],
        ),
        *(line for path in REGISTRIES for line in _backend(path)),
        "## Segments",
        "",
        '`IDGEN["SEGMENTS"]["OPTIONS"]`',
        "",
        *_table(("option", "default"), ((f"`{name}`", _default(value)) for name, value in options)),
        "## Sources",
        "",
        '`IDGEN["SEGMENTS"]["SOURCE"]`, with `BACKEND` and `OPTIONS`.',
        "",
        *(line for path in SOURCES for line in _backend(path)),
        "## REST",
        "",
        '`IDGEN["REST"]`: [the service](service.md#settings).',
        "",
        *_table(("key", "default", ""), _fields(config.RestSettings)),
        "## Metrics",
        "",
        '`IDGEN["METRICS"]`: [metrics](monitoring.md).',
        "",
        *_table(("key", "default", ""), _fields(config.MetricsSettings)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def metrics_page() -> str:
    """Return the page of all metrics."""
    groups = (
        (
            "Of each process",
            "What a process counts and holds. With several processes, `lease_held`, "
            "`lease_seconds_left`, `worker_id` and `clock_offset_seconds` also have the label "
            "`pid`.",
            definitions.PROCESS,
        ),
        ("Derived", "Computed at each scrape.", definitions.DERIVED),
        (
            "Shared",
            "What databases and Redis know. A scrape asks them, at most every `max_age` seconds.",
            definitions.SHARED,
        ),
    )
    lines = [
        "# All metrics",
        "",
        GENERATED,
        "",
        "For a look-up: each metric as Prometheus shows it. "
        "[Metrics, alerts and logs](monitoring.md) says how to set them up, and which to watch.",
        "",
    ]
    for title, words, group in groups:
        rows = [
            (
                f"`{each.name}`",
                each.kind,
                ", ".join(f"`{label}`" for label in each.labels) or "none",
                each.help,
            )
            for each in listed(group)
        ]
        lines += [f"## {title}", "", words, "", *_table(("metric", "kind", "labels", ""), rows)]
    return "\n".join(lines).rstrip() + "\n"


def checks_page() -> str:
    """Return the page of all system checks, from the docstring of their module."""
    found = re.findall(r"^([EIW]\d{3}) +(.+)$", checks.__doc__ or "", re.MULTILINE)
    examined = {"W020": "all of them"} | {
        each: name
        for name, examine in doctor.CHECKS.items()
        for each in re.findall(r"[EIW]\d{3}", (examine.__doc__ or "").partition(":")[0])
    }
    lines = [
        "# All checks",
        "",
        GENERATED,
        "",
        "For a look-up: each system check, by its id, with the prefix `django_idgen.`. The first "
        "letter says how serious it is: error, warning or information.",
        "",
        "`manage.py check` runs those whose last column is empty. The others ask databases, Redis "
        "and services. They run with `manage.py check --deploy --database ALIAS`, never with "
        "`migrate`, and in [the doctor](operating.md#the-doctor), under the name that the column "
        "has.",
        "",
        *_table(
            ("id", "", "doctor"),
            (
                (f"`{each}`", text.replace("``", "`"), examined.get(each, ""))
                for each, text in found
            ),
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _error(found: type[Exception]) -> tuple[str, str, str]:
    bases = ", ".join(f"`{each.__name__}`" for each in found.__bases__)
    first = (inspect.getdoc(found) or "").split("\n\n")[0]
    return f"`{found.__name__}`", bases, " ".join(first.split()).replace("``", "`")


def _signal_words() -> Iterator[tuple[str, str]]:
    """Each signal with the string below it."""
    body = ast.parse(inspect.getsource(signals)).body
    for made, after in itertools.pairwise(body):
        if isinstance(made, ast.Assign) and isinstance(after, ast.Expr):
            name = made.targets[0].id  # type: ignore
            if name in signals.SIGNALS:
                yield name, " ".join(after.value.value.split()).replace("``", "`")  # type: ignore


def errors_page() -> str:
    """Return the page of errors and signals, from their docstrings."""
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    classes = [each for each in found if issubclass(each, Exception)]
    lines = [
        "# Errors and signals",
        "",
        GENERATED,
        "",
        "## Errors",
        "",
        "All errors are subclasses of `IdgenError`, in `django_idgen.core.errors`. Each message "
        "names the wrong value and the way out, and the values are attributes. To catch a whole "
        "kind, use `LeaseError` (worker ids), `ClockError` (time) or `SegmentError`. A failure "
        "never returns an id: not 0, not -1, not `None`. If a save inside `atomic()` fails because "
        "no id was available, roll the block back, as after any error while saving.",
        "",
        *_table(("error", "a kind of", ""), map(_error, [*classes, SettingsError, TagUnknown])),
        "`SettingsError` is in `django_idgen.settings`, and `TagUnknown` in "
        "`django_idgen.process.tags`.",
        "",
        "## Signals",
        "",
        'The signals are in `django_idgen.signals`; their sender is the string `"django_idgen"`. '
        "They are sent while no lock is held. An exception of a receiver is logged and goes no "
        "further. Each signal is a line of the logger `django_idgen`, too, with its values as "
        "[fields](monitoring.md#logs).",
        "",
        *_table(
            ("signal", "values", "level"),
            (
                (f"`{name}`", words, logging.getLevelName(signals.LEVELS[name]).lower())
                for name, words in _signal_words()
            ),
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def hazards_page() -> str:
    """Return the page of the faults that tests are about."""
    tests = tests_of()
    rows = []
    for each in HAZARDS:
        first, *others = tests[each.number]
        more = " and others" if others else ""
        rows.append((f"{each.number}", each.fault, ", ".join(each.who), f"`{first}`{more}"))
    lines = [
        "# Hazards",
        "",
        GENERATED,
        "",
        "Each fault below repeats, loses or spoils ids. Other systems have it, or our own drafts "
        "had it. A test shows that this version does not. [Proof](proof.md) says what else was "
        "checked.",
        "",
        *_table(("", "fault", "found in", "test"), rows),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    (folder / "reference-checks.md").write_text(checks_page(), "utf-8")
    (folder / "reference-errors.md").write_text(errors_page(), "utf-8")
    (folder / "reference-hazards.md").write_text(hazards_page(), "utf-8")
    (folder / "reference-settings.md").write_text(settings_page(), "utf-8")
    (folder / "reference-metrics.md").write_text(metrics_page(), "utf-8")
