"""The ledger of a namespace that Redis lends on: the database's, and the hash in Redis.

What counts is the database's: Redis lends nothing at or past the ceiling there. The hash
is begun anew after it, so that those with earlier settings are refused at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import RegistryUnavailable
from ...core.ledger import Change, Ledger, Stored, with_highest
from .refusals import refusal
from .scripts import LeaseScripts, key_of

__all__ = ["BorrowedLedger"]


@dataclass(frozen=True, slots=True)
class _Hash:
    """What stands in Redis."""

    fingerprint: Mapping[str, Any]
    ceiling: int


class BorrowedLedger:
    """``root``, of which the Redis of ``scripts`` lends on. A :class:`Ledger`."""

    def __init__(self, root: Ledger, scripts: LeaseScripts) -> None:
        self.namespace = root.namespace
        self.place = f"{root.place}, lent on by the Redis of CACHES[{scripts.own.alias!r}]"
        self.key = root.key
        self._root = root
        self._scripts = scripts

    def read(self) -> Stored | None:
        """See :meth:`Ledger.read`."""
        return self._root.read()

    def rewrite(self, change: Change) -> Stored:
        """See :meth:`Ledger.rewrite`; reckons with what Redis says."""
        try:
            found = self._hash()
        except RegistryUnavailable:
            found = None  # it lends nothing past the database's ceiling

        def reckoned(stored: Stored, now_us: int) -> Any:
            # Where the database was put back to an earlier state, Redis may know better.
            if found is not None and found.fingerprint == stored.fingerprint:
                stored = with_highest(stored, found.ceiling)
            return change(stored, now_us)

        return self._root.rewrite(reckoned)

    def installation(self) -> str:
        """See :meth:`Ledger.installation`."""
        return self._root.installation()

    def entered(self) -> bool:
        """See :meth:`Ledger.entered`. Raises :class:`RegistryUnavailable`."""
        found = self._hash()
        return found is None or found.fingerprint == dict(self.namespace.fingerprint)

    def is_whole(self) -> bool:
        """See :meth:`Ledger.is_whole`: whether the hash is there."""
        return self._hash() is not None

    def enter(self) -> None:
        """See :meth:`Ledger.enter`. Raises what a refusal of the script means."""
        stored = self._root.read()
        if stored is None:
            return
        reply = self._scripts.enter(self._root.installation(), stored.generation)
        if reply.status != "ok":
            raise refusal(reply, self.namespace, self._scripts.own)

    def _hash(self) -> _Hash | None:
        installation = self._root.installation()
        if not installation:
            return None
        key = key_of(installation, self.namespace.name)
        words = self._scripts.own.ask(
            lambda client: client.hmget(key, "fingerprint", "ceiling"),
            unavailable=RegistryUnavailable,
        )
        if words[0] is None:
            return None
        return _Hash(_parsed(words[0]), int(words[1] or 0))


def _parsed(words: bytes | str) -> Mapping[str, Any]:
    try:
        found = json.loads(words)
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}
