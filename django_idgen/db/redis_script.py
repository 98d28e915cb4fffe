"""Lua scripts that a Redis server runs: each in one round trip, and never sent twice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files

import redis

__all__ = ["run_script"]


def run_script(
    client: redis.Redis, parts: Sequence[str], keys: Sequence[str], words: Sequence[object]
) -> list[str]:
    """What the script answers that ``parts`` (``package/name`` of .lua files) make up, as texts.

    Raises what the client raises; the script may have been applied none the less.
    """
    script, digest = _script(*parts)
    given = (len(keys), *keys, *words)
    try:
        answer = client.execute_command("EVALSHA", digest, *given)  # type: ignore[no-untyped-call]
    except redis.exceptions.NoScriptError:
        # That answer says that nothing was run: this is not a repetition.
        answer = client.execute_command("EVAL", script, *given)  # type: ignore[no-untyped-call]
    return [_text(word) for word in answer]


@cache
def _script(*parts: str) -> tuple[str, str]:
    """A script's text, and the digest that a server knows it by once it has run."""
    texts = []
    for part in parts:
        package, _, name = part.rpartition("/")
        folder = files(package) / "lua"
        texts.append((folder / f"{name}.lua").read_text(encoding="utf-8"))
    text = "\n".join(texts)
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()  # as Redis names scripts


def _text(word: object) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
