"""A status as text: tables that fit the terminal."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

Document = dict[str, Any]
GAP = "  "
NARROWEST = 8
"""The least width of a cell, in columns."""
CUT_FIRST = "HOLDER"
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
    CUT_FIRST,
)


def render(found: Document, *, width: int | None, every: bool = False) -> str:
    """The document of :func:`~django_idgen.ops.status.status` as text.

    ``width``: of the terminal, in columns; None: cut and wrap nothing. ``every``: show all
    holders.
    """
    parts = [
        [_clock(found["at"])],
        *(_generator(entry, width, every) for entry in found["generators"]),
        *(_tags(entry, width) for entry in found["tags"]),
        [] if found["tags"] else ["TAGS: kept elsewhere, by the service that lends them"],
        [line for place in _places(found) for line in _wrapped(place, width)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


# --- parts --------------------------------------------------------------------------


def _generator(entry: Document, width: int | None, every: bool) -> list[str]:
    texts = [
        f"GENERATOR {entry['alias']}: namespace {entry['namespace']}, {entry['layout']}",
        f"  ids until {_clock(entry['exhausted_at'])[:10]} ({_left(entry['exhausted_in'])})",
        f"  worker ids from {entry['registry']}: {_workers(entry)}",
    ]
    lines = [line for each in texts for line in _wrapped(each, width)]
    holders = entry["holders"]
    shown = holders if every else holders[:MOST_HOLDERS]
    if shown:
        rows = [_holder(each) for each in shown]
        head = ("WORKER", "STATE", CUT_FIRST, "WINDOW LEFT", "CLOCK", "SEEN")
        lines += table(head, rows, width, indent="  ")
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
        each["holder"],
        span(each["window_left"]),
        "" if offset is None else f"{offset:+.3f} s",
        "" if seen is None else f"{span(max(ago, 0.0))} ago",
    )


def _tags(entry: Document, width: int | None) -> list[str]:
    title = f"TAGS in database {entry['database']}"
    if entry["error"] is not None:
        return _wrapped(f"{title}: {_cannot(entry)}", width)
    if not entry["list"]:
        return [f"{title}: none"]
    lines = [f"{title}: {entry['total']}, {_number(entry['fetch_rate'])} ids fetched a second"]
    lines += table(TAG_COLUMNS, [_tag(each) for each in entry["list"]], width, indent="  ")
    if (left_out := entry["total"] - len(entry["list"])) > 0:
        lines.append(f"  ... and {left_out} that are used less: see --all")
    return lines


def _tag(each: Document) -> Sequence[str]:
    return (
        each["tag"],
        "paused" if each["paused"] else "",
        str(each["max_id"]),
        str(each["step"]),
        _number(each["fetch_rate"]) if each["fetch_rate"] else "",
        span(each["segment_left"]),
        "" if each["pooled"] is None else str(each["pooled"]),
        span(each["pool_left"]),
        _left(each["range_left"]),
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
    lacking = [*entry["unmade"], *entry["behind"]]
    if not lacking:
        return answer
    where = "" if entry["alias"] == "default" else f" --database {entry['alias']}"
    return f"{answer}, and lacks {', '.join(lacking)}: run 'manage.py migrate django_idgen{where}'"


def _cannot(entry: Document) -> str:
    return f"can't be queried. {_line(entry['error'])}"


# --- tables -------------------------------------------------------------------------


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, indent: str = ""
) -> list[str]:
    """Lines of at most ``width`` columns, without empty columns.

    Names of holders are cut first, then the widest cells. With ``width`` None nothing is cut.
    """
    cells = [tuple(map(_line, row)) for row in rows]
    used = [place for place in range(len(head)) if any(row[place] for row in cells)]
    lines = [[row[place] for place in used] for row in (tuple(head), *cells)]
    widths = [max(_width(line[place]) for line in lines) for place in range(len(used))]
    if width is not None:
        room = width - len(indent) - len(GAP) * (len(used) - 1)
        if CUT_FIRST in lines[0]:
            place = lines[0].index(CUT_FIRST)
            least = min(widths[place], NARROWEST)
            widths[place] = max(widths[place] - max(sum(widths) - room, 0), least)
        while sum(widths) > room and max(widths) > NARROWEST:
            widths[widths.index(max(widths))] -= 1
    return [
        (indent + GAP.join(_fitted(*pair) for pair in zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]


def _wrapped(line: str, width: int | None) -> list[str]:
    if width is None:
        return [line]
    return textwrap.wrap(line, max(width, 20), subsequent_indent="    ", break_long_words=False)


def _fitted(cell: str, width: int) -> str:
    if _width(cell) > width:
        while _width(cell) >= width:
            cell = cell[:-1]
        cell += "…"
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
    """A duration in a suitable unit: ``"2.5 min"``; empty if unknown."""
    if seconds is None:
        return ""
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
