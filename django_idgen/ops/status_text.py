"""A status for people: tables that fit the terminal."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = ["render", "span", "table"]

Document = dict[str, Any]
GAP = "  "
NARROWEST = 8
"""Columns that a cell keeps, however narrow the terminal is."""
UNITS = ((86400 * 365.25, "y"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
STATES = ("held", "lapsing", "lapsed", "free", "reserved", "unknown")
SHOWN = {state: state for state in STATES} | {"lapsing": "overdue", "lapsed": "expired"}
"""The words for states whose names in JSON are others."""
MOST_HOLDERS = 20


def render(
    found: Document, *, width: int, before: Document | None = None, every: bool = False
) -> str:
    """The document of :func:`~django_idgen.ops.status.status` in words.

    ``width``: of the terminal, in columns. With ``before``, an earlier document, a column
    says how many ids a second were handed out since. ``every``: name all holders.
    """
    parts = [
        [_clock(found["at"])],
        *(_generator(entry, width, every) for entry in found["generators"]),
        *(_tags(entry, width, found, before) for entry in found["tags"]),
        [] if found["tags"] else ["TAGS: kept elsewhere, by the service that lends them"],
        [line for place in _places(found) for line in _wrapped(place, width)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


# --- parts --------------------------------------------------------------------------


def _generator(entry: Document, width: int, every: bool) -> list[str]:
    words = [
        f"GENERATOR {entry['alias']}: namespace {entry['namespace']}, {entry['layout']}",
        f"  ids until {_clock(entry['exhausted_at'])[:10]} ({_left(entry['exhausted_in'])})",
        f"  worker ids from {entry['registry']}: {_workers(entry)}",
        *(
            f"  {part['first']}..{part['last']} can't be asked: {_line(part['why'])}"
            for part in entry["unseen"]
        ),
    ]
    lines = [line for each in words for line in _wrapped(each, width)]
    holders = entry["holders"]
    shown = holders if every else holders[:MOST_HOLDERS]
    if shown:
        rows = [_holder(each) for each in shown]
        head = ("WORKER", "STATE", "HOLDER", "WINDOW LEFT", "CLOCK", "SEEN")
        lines += table(head, rows, width, indent="  ")
    if len(shown) < len(holders):
        lines.append(f"  ... and {len(holders) - len(shown)} more holders: see --all")
    return lines


def _workers(entry: Document) -> str:
    if entry["error"] is not None:
        return f"can't be asked. {_line(entry['error'])}"
    if not entry["seen"]:
        return "can't be seen from here"
    counts = entry["workers"]
    words = [f"{counts[each]} {SHOWN[each]}" for each in STATES if counts[each]]
    return f"{', '.join(words)} (of {counts['total']})"


def _holder(each: Document) -> Sequence[str]:
    offset = each["clock_offset"]
    return (
        str(each["worker"]),
        SHOWN[each["state"]],
        each["holder"],
        span(each["window_left"]),
        "" if offset is None else f"{offset:+.3f} s",
        _ago(each["seen_at"]),
    )


def _tags(entry: Document, width: int, found: Document, before: Document | None) -> list[str]:
    title = f"TAGS in database {entry['database']}"
    if entry["error"] is not None:
        return _wrapped(f"{title}: can't be asked. {_line(entry['error'])}", width)
    shown = entry["list"]
    if not shown:
        return [f"{title}: none"]
    head = [
        "TAG",
        "NEXT ID",
        "STEP",
        "FETCH RATE",
        "SEGMENT",
        "POOL",
        "POOL LASTS",
        "IDS LAST",
        "HOLDER",
    ]
    now = {} if before is None else _rates_between(before, found, entry["database"])
    rows = [_tag(each) for each in shown]
    if before is not None:
        head.insert(4, "FETCHED/S")
        for row, each in zip(rows, shown, strict=True):
            row.insert(4, _number(now.get(each["tag"])))
    lines = [f"{title}: {entry['total']}, {_number(entry['fetch_rate'])} ids fetched a second"]
    lines += table(head, rows, width, indent="  ")
    if len(shown) < entry["total"]:
        lines.append(f"  ... and {entry['total'] - len(shown)} that are used less: see --all")
    return lines


def _tag(each: Document) -> list[str]:
    return [
        each["tag"] + (" (paused)" if each["paused"] else ""),
        str(each["max_id"]),
        str(each["step"]),
        _number(each["fetch_rate"] or None),
        span(each["segment_left"]),
        "" if each["pooled"] is None else str(each["pooled"]),
        span(each["pool_left"]),
        _left(each["range_left"]),
        each["holder"],
    ]


def _rates_between(before: Document, found: Document, database: str) -> dict[str, float]:
    """Ids a second that were handed out to processes between two looks, by tag."""
    seconds = (_moment(found["at"]) - _moment(before["at"])).total_seconds()
    former = {each["tag"]: each for each in _listed(before, database)}
    if seconds <= 0:
        return {}
    return {
        each["tag"]: max(_gone(former[each["tag"]], each) / seconds, 0.0)
        for each in _listed(found, database)
        if each["tag"] in former
    }


def _gone(before: Document, now: Document) -> int:
    pooled = (now["pooled"] or 0) - (before["pooled"] or 0)
    return int(before["ids_left"] - now["ids_left"] - pooled)


def _listed(found: Document, database: str) -> Iterable[Document]:
    return (tag for part in found["tags"] if part["database"] == database for tag in part["list"])


def _places(found: Document) -> Iterable[str]:
    pool = found["pool"]
    if pool is not None:
        ids = sum(tag["pooled"] or 0 for part in found["tags"] for tag in part["list"])
        state = (
            f"{ids} ids ready of the tags above, Redis uses {pool['memory'] / 1e6:.1f} MB"
            if pool["error"] is None
            else f"can't be asked. {_line(pool['error'])}"
        )
        yield f"POOL {pool['alias']}: {state}"
    for entry in found["databases"]:
        yield f"DATABASE {entry['alias']} ({entry['vendor']}): {_database(entry)}"


def _database(entry: Document) -> str:
    if entry["error"] is not None:
        return f"can't be asked. {_line(entry['error'])}"
    answer = f"answers in {entry['seconds'] * 1000:.1f} ms"
    if not entry["behind"]:
        return answer
    return f"{answer}, and lacks {', '.join(entry['behind'])}: run 'manage.py migrate django_idgen'"


# --- tables -------------------------------------------------------------------------


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, indent: str = ""
) -> list[str]:
    """Lines of ``width`` columns at most; of the widest cells the end is cut off.

    Columns without a single value are left out.
    """
    cells = [tuple(map(_line, row)) for row in rows]
    used = [place for place in range(len(head)) if any(row[place] for row in cells)]
    lines = [[row[place] for place in used] for row in (tuple(head), *cells)]
    widths = [max(_width(line[place]) for line in lines) for place in range(len(used))]
    room = width - len(indent) - len(GAP) * (len(used) - 1)
    while sum(widths) > room and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return [
        (indent + GAP.join(_fitted(*pair) for pair in zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, max(width, 20), subsequent_indent="    ", break_long_words=False)


def _fitted(cell: str, width: int) -> str:
    if _width(cell) > width:
        while _width(cell) >= width:
            cell = cell[:-1]
        cell += "…"
    return cell + " " * (width - _width(cell))


def _width(cell: str) -> int:
    """Columns of a terminal: of Chinese characters, each takes two."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in cell)
    return len(cell) + wide - sum(unicodedata.combining(character) != 0 for character in cell)


def _line(text: str) -> str:
    """On one line, and nothing in it that a terminal would take for an order."""
    words = " ".join(str(text).split())
    return "".join(character if character.isprintable() else "?" for character in words)


# --- values -------------------------------------------------------------------------


def span(seconds: float | None) -> str:
    """A duration in the unit that suits it: ``"2.5 min"``; nothing if it isn't known."""
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


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _clock(text: str) -> str:
    return f"{_moment(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ago(text: str | None) -> str:
    if text is None:
        return ""
    return f"{span(max((datetime.now(UTC) - _moment(text)).total_seconds(), 0.0))} ago"
