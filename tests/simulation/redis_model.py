"""A Redis in memory: the package's own Lua, run by a Lua interpreter, on a dictionary of hashes.

It has only the commands that the scripts call, and a clock, a life and a role that a simulation
sets. ``tests/contracts/test_redis_model.py`` holds it against a real Redis.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from hashlib import sha1
from typing import Any

import redis
from lupa import lua51

__all__ = ["RedisModel"]

Hash = dict[str, str]


class RedisModel:
    """One server. ``now_us``: its clock, µs since 1970. Also the client of its users."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._lives = 0
        self.hashes: dict[str, Hash] = {}
        self.run_id = self.replid = ""
        self.role = "master"
        self._known: dict[str, str] = {}
        self._compiled: dict[str, Any] = {}
        self._one_at_a_time = threading.Lock()
        self._lua = lua51.LuaRuntime(unpack_returned_tuples=True, encoding="utf-8")
        self._scope = self._lua.globals()
        self._scope.redis = self._lua.table_from(
            {"call": self._call, "pcall": self._pcall, "sha1hex": _sha1}
        )
        self.restart()

    # --- what happens to it --------------------------------------------------------------

    def restart(self) -> None:
        """A new process with the data that is there: another run, and another replication."""
        self._lives += 1
        self.run_id = f"run{id(self):x}n{self._lives}"
        self.replid = f"replid{id(self):x}n{self._lives}"

    def lose_all(self) -> None:
        """FLUSHALL. The process goes on."""
        self.hashes.clear()

    def save(self) -> dict[str, Hash]:
        """What a replica, or a file, has at this moment."""
        return deepcopy(self.hashes)

    def load(self, hashes: dict[str, Hash]) -> None:
        """A replica that is promoted with ``hashes``, or a restart with an old file."""
        self.hashes = deepcopy(hashes)
        self.restart()

    # --- as a client of redis-py ------------------------------------------------------------

    def execute_command(self, *words: object) -> list[str]:
        command, script, count, *rest = words
        if command == "EVALSHA":
            if script not in self._known:
                raise redis.exceptions.NoScriptError("NOSCRIPT")
            script = self._known[str(script)]
        else:
            self._known[_sha1(str(script))] = str(script)
        keys, given = rest[: int(str(count))], rest[int(str(count)) :]
        return self._run(str(script), [str(each) for each in keys], [str(each) for each in given])

    def ping(self) -> bool:
        return True

    @property
    def connection_pool(self) -> RedisModel:
        """Itself: there is no connection to close."""
        return self

    def disconnect(self) -> None:
        """Nothing to close."""

    def _run(self, script: str, keys: list[str], given: list[str]) -> list[str]:
        with self._one_at_a_time:
            if script not in self._compiled:
                self._compiled[script] = self._lua.execute(f"return function() {script}\nend")
            self._scope.KEYS, self._scope.ARGV = map(self._lua.table_from, (keys, given))
            reply = self._compiled[script]()
            return [str(reply[place]) for place in range(1, len(reply) + 1)]

    # --- the commands that scripts call ---------------------------------------------------------

    def _pcall(self, name: str, *words: Any) -> Any:
        return self._call(name, *words)

    def _call(self, name: str, *words: Any) -> Any:
        found = getattr(self, f"_{name.lower()}")(*[_text(word) for word in words])
        return self._lua.table_from(found) if isinstance(found, list) else found

    def _time(self) -> list[str]:
        now = self._now_us()
        return [str(now // 1_000_000), str(now % 1_000_000)]

    def _info(self, section: str) -> str:
        if section == "server":
            return f"run_id:{self.run_id}\r\n"
        return f"role:{self.role}\r\nmaster_replid:{self.replid}\r\n"

    def _hget(self, key: str, field: str) -> str | bool:
        return self.hashes.get(key, {}).get(field, False)

    def _hmget(self, key: str, *fields: str) -> list[str | bool]:
        return [self._hget(key, field) for field in fields]

    def _hset(self, key: str, *pairs: str) -> int:
        known = self.hashes.setdefault(key, {})
        before = len(known)
        known.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(known) - before

    def _hsetnx(self, key: str, field: str, value: str) -> int:
        return 0 if field in self.hashes.get(key, {}) else self._hset(key, field, value)

    def _hdel(self, key: str, *fields: str) -> int:
        known = self.hashes.get(key, {})
        count = sum(known.pop(field, None) is not None for field in fields)
        if key in self.hashes and not known:
            del self.hashes[key]
        return count

    def _hlen(self, key: str) -> int:
        return len(self.hashes.get(key, {}))

    def _hgetall(self, key: str) -> list[str]:
        return [word for pair in self.hashes.get(key, {}).items() for word in pair]

    def _hscan(self, key: str, *_: str) -> list[Any]:
        found = [
            word
            for field, value in self.hashes.get(key, {}).items()
            if field.startswith("w:")
            for word in (field, value)
        ]
        return ["0", self._lua.table_from(found)]

    def _del(self, *keys: str) -> int:
        return sum(self.hashes.pop(key, None) is not None for key in keys)

    def _pexpire(self, *_: str) -> int:
        return 1


def _text(word: Any) -> str:
    """As Redis takes a number of Lua."""
    return f"{word:.17g}" if isinstance(word, float) else str(word)


def _sha1(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
