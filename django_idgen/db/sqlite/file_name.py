"""Which file the ``NAME`` of a SQLite database means: a path, a ``file:`` address, or none."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from urllib.parse import parse_qs, unquote

__all__ = ["file_of"]


def file_of(name: str | PathLike[str] | None) -> Path | None:
    """The database's file, as SQLite itself would find it; ``None`` if it has none.

    Symbolic links are followed: two releases of a site, each with a link to the one
    database, must find the same marks beside it.
    """
    text = fspath(name or "")
    query = ""
    if text.startswith("file:"):
        text, _, query = text.removeprefix("file:").partition("#")[0].partition("?")
        if text.startswith("//"):
            text = "/" + text[2:].partition("/")[2]
        text = unquote(text)
    if text in {"", ":memory:"} or "memory" in parse_qs(query).get("mode", ()):
        return None
    return Path(text).resolve()
