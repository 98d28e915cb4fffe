"""A status as text: tables whose columns are always the same."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

Document = dict[str, Any]
GAP = "  "
UNKNOWN = "-"
WIDEST = 32
"""Columns of a cell on a terminal."""
UNITS = ((86400 * 365.25, "y"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
STATES = {
    "held": "held",
    "lapsing": "overdue",
    "lapsed": "expired",
    "free": "free",
    "used": "used up",
    "reserved": "reserved",
}
"""The states of worker ids: the name in JSON, and the one that is shown."""
MOST_HOLDERS = 20
HOLDER_COLUMNS = ("WORKER", "STATE", "WINDOW LEFT", "CLOCK", "SEEN", "HOLDER")
TAG_COLUMNS = (
    "TAG",
    "STATE",
    "NEXT ID",
    "STEP",
    "FETCH RATE",
    "SEGMENT",
    "POOL",
    "POOL LASTS",
    "IDS LAST",
    "HOLDER",
)


def render(found: Document, *, width: int | None, every: bool = False) -> str:
    """The document of :func:`~django_idgen.ops.status.status` as text.

    ``width``: of the terminal, in columns; None: cut nothing. ``every``: show all holders.
    """
    parts = [
        [_clock(found["at"])],
        *(_generator(entry, width, every) for entry in found["generators"]),
        *(_tags(entry, width) for entry in found["tags"]),
        [] if found["tags"] else ["TAGS: kept elsewhere, by the service that lends them"],
        list(_places(found)),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


# --- parts --------------------------------------------------------------------------


def _generator(entry: Document, width: int | None, every: bool) -> list[str]:
    lines = [
        f"GENERATOR {entry['alias']}: namespace {entry['namespace']}, {entry['layout']}",
        f"  ids until {_clock(entry['exhausted_at'])[:10]} ({_left(entry['exhausted_in'])})",
        f"  worker ids from {entry['registry']}: {_workers(entry)}",
    ]
    holders = entry["holders"]
    shown = holders if every else holders[:MOST_HOLDERS]
    if shown:
        lines += table(HOLDER_COLUMNS, map(_holder, shown), width)
    if len(shown) < len(holders):
        lines.append(f"  ... and {len(holders) - len(shown)} more holders: see --all")
    return lines


def _workers(entry: Document) -> str:
    if entry["error"] is not None:
        return _cannot(entry)
    if not entry["seen"]:
        return "can't be seen from here"
    counts = entry["workers"]
    texts = [f"{counts[each]} {shown}" for each, shown in STATES.items() if counts[each]]
    return f"{', '.join(texts)} (of {counts['total']})"


def _holder(each: Document) -> Sequence[str]:
    offset, seen = each["clock_offset"], each["seen_at"]
    ago = 0.0 if seen is None else (datetime.now(UTC) - _moment(seen)).total_seconds()
    return (
        str(each["worker"]),
        STATES[each["state"]],
        span(each["window_left"]),
        UNKNOWN if offset is None else f"{offset:+.3f} s",
        UNKNOWN if seen is None else f"{span(max(ago, 0.0))} ago",
        each["holder"],
    )


def _tags(entry: Document, width: int | None) -> list[str]:
    title = f"TAGS in database {entry['database']}"
    if entry["error"] is not None:
        return [f"{title}: {_cannot(entry)}"]
    if not entry["list"]:
        return [f"{title}: none"]
    paused = f" ({entry['paused']} paused)" if entry["paused"] else ""
    rate = _number(entry["fetch_rate"])
    lines = [f"{title}: {entry['total']}{paused}, {rate} ids fetched a second"]
    lines += table(TAG_COLUMNS, map(_tag, entry["list"]), width)
    if (left_out := entry["total"] - len(entry["list"])) > 0:
        lines.append(f"  ... and {left_out} that are used less: see --all")
    return lines


def _tag(each: Document) -> Sequence[str]:
    # No process gets what a paused tag has left.
    known = not each["paused"]
    return (
        each["tag"],
        each["state"] if known else "PAUSED",
        str(each["max_id"]),
        str(each["step"]),
        _number(each["fetch_rate"]) if known and each["fetch_rate"] else UNKNOWN,
        span(each["segment_left"] if known else None),
        UNKNOWN if each["pooled"] is None else str(each["pooled"]),
        span(each["pool_left"] if known else None),
        _left(each["range_left"] if known else None),
        each["holder"],
    )


def _places(found: Document) -> Iterable[str]:
    pool = found["pool"]
    if pool is not None:
        ids = sum(tag["pooled"] or 0 for part in found["tags"] for tag in part["list"])
        state = (
            f"{ids} ids ready of the tags above, Redis uses {pool['memory'] / 1e6:.1f} MB"
            if pool["error"] is None
            else _cannot(pool)
        )
        yield f"POOL {pool['alias']}: {state}"
    for entry in found["databases"]:
        yield f"DATABASE {entry['alias']} ({entry['vendor']}): {_database(entry)}"


def _database(entry: Document) -> str:
    if entry["error"] is not None:
        return _cannot(entry)
    answer = f"answers in {entry['seconds'] * 1000:.1f} ms"
    if entry["installation"]:
        answer += f", installation {entry['installation']}"
    lacking = [*entry["unmade"], *entry["behind"]]
    if not lacking:
        return answer
    where = "" if entry["alias"] == "default" else f" --database {entry['alias']}"
    return f"{answer}, and lacks {', '.join(lacking)}: run 'manage.py migrate django_idgen{where}'"


def _cannot(entry: Document) -> str:
    return f"can't be queried. {_line(entry['error'])}"


# --- tables -------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None) -> list[str]:
    """Lines with all columns of ``head``, whatever is known.

    On a terminal long cells are cut, and lines at its ``width``. With None nothing is cut.
    """
    most = None if width is None else WIDEST
    lines = [head, *([_cut(_line(cell) or UNKNOWN, most) for cell in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return [_cut(GAP + GAP.join(map(_padded, line, widths)).rstrip(), width) for line in lines]


def _cut(text: str, width: int | None) -> str:
    if width is None or _width(text) <= width:
        return text
    while _width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(cell: str) -> int:
    """Columns on a terminal: a Chinese character takes two."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in cell)
    return len(cell) + wide - sum(unicodedata.combining(character) != 0 for character in cell)


def _line(text: str) -> str:
    """``text`` on one line, without control characters."""
    line = " ".join(str(text).split())
    return "".join(character if character.isprintable() else "?" for character in line)


# --- values -------------------------------------------------------------------------


def span(seconds: float | None) -> str:
    """A duration in a suitable unit: ``"2.5 min"``; a dash if unknown."""
    if seconds is None:
        return UNKNOWN
    if not math.isfinite(seconds) or seconds > 1000 * UNITS[0][0]:
        return "> 1000 y"
    for length, unit in UNITS:
        if abs(seconds) >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds else "0 s"


def _left(seconds: float | None) -> str:
    return "ended" if seconds is not None and seconds <= 0 else span(seconds)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _clock(text: str) -> str:
    return f"{_moment(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
