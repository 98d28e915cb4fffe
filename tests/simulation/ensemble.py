"""A ZooKeeper in memory, of one leader at a time, and the ways of processes to it.

It answers as kazoo does, and can be set back to any state that it ever had, as the disks of its
members can. Then it elects: the first half of each number of a change is the election's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kazoo import exceptions

from django_idgen.core.errors import RegistryUnavailable

__all__ = ["Ensemble", "Session"]


@dataclass
class Node:
    data: bytes
    version: int = 0
    mtime: int = 0
    mzxid: int = 0
    ephemeralOwner: int = 0  # noqa: N815 - as kazoo names it


@dataclass
class Ensemble:
    """All nodes, by path; to a client, kazoo's asynchronous calls, each done at once."""

    now_ms: Callable[[], int]
    nodes: dict[str, Node] = field(default_factory=dict)
    election: int = 1
    pasts: list[tuple[int, dict[str, Node]]] = field(default_factory=list)
    """What it was at some moments: the election, and the nodes."""
    late: list[Callable[[Any], Any]] = field(default_factory=list)
    """Requests on their way."""
    session: int = 0
    """Whose request is being done."""

    # --- what happens to it ---------------------------------------------------------

    def save(self) -> None:
        self.pasts.append((self.election, deepcopy(self.nodes)))

    def elect(self, past: int | None = None) -> None:
        """Elect a leader; ``past`` is what the disks of its members were set back to."""
        if past is not None:
            self.election, nodes = self.pasts[past:][0]
            self.nodes = deepcopy(nodes)
        self.election += 1
        self.late.clear()

    def end_session(self, session: int) -> None:
        for path in [p for p, node in self.nodes.items() if node.ephemeralOwner == session]:
            del self.nodes[path]

    def delete(self, top: str) -> None:
        for path in [p for p in self.nodes if f"{p}/".startswith(f"{top}/")]:
            del self.nodes[path]

    def deliver(self) -> None:
        """What was on its way arrives."""
        while self.late:
            with suppress(exceptions.KazooException):
                self.late.pop(0)(self)

    # --- what it is asked ------------------------------------------------------------

    def exists_async(self, path: str) -> Node | None:
        return deepcopy(self.nodes.get(path))

    def get_async(self, path: str) -> tuple[bytes, Node]:
        node = deepcopy(self._node(path))
        return node.data, node

    def set_async(self, path: str, data: bytes, version: int = -1) -> Node:
        node = self._node(path)
        if version not in (-1, node.version):
            raise exceptions.BadVersionError
        node.data, node.version = data, node.version + 1
        return deepcopy(self._dated(node))

    def ensure_path_async(self, path: str) -> None:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            self.nodes.setdefault("/".join(parts[:end]), self._dated(Node(b"")))

    def create_async(self, path: str, data: bytes, *, ephemeral: bool, makepath: bool) -> None:
        assert makepath
        if path in self.nodes:
            raise exceptions.NodeExistsError
        self.ensure_path_async(path.rpartition("/")[0])
        owner = self.session if ephemeral else 0
        self.nodes[path] = self._dated(Node(data, ephemeralOwner=owner))

    def delete_async(self, path: str) -> None:
        self._node(path)
        del self.nodes[path]

    def transaction(self) -> Transaction:
        return Transaction(self)

    def _node(self, path: str) -> Node:
        if path not in self.nodes:
            raise exceptions.NoNodeError
        return self.nodes[path]

    def _dated(self, node: Node) -> Node:
        node.mtime = self.now_ms()
        node.mzxid = self.election << 32 | 1
        return node


class Transaction:
    """Steps that are all done, or none."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._steps: list[Callable[[], object]] = []

    def create(self, path: str) -> None:
        created = partial(self._ensemble.create_async, path, b"", ephemeral=False, makepath=True)
        self._steps.append(lambda: (self._ensemble._node(path.rpartition("/")[0]), created()))

    def check(self, path: str, version: int) -> None:
        assert version == -1
        self._steps.append(lambda: self._ensemble._node(path))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self._steps.append(lambda: self._ensemble.set_async(path, data, version))

    def commit_async(self) -> None:
        before = deepcopy(self._ensemble.nodes)
        try:
            for step in self._steps:
                step()
        except exceptions.KazooException:
            self._ensemble.nodes = before
            raise


class Session:
    """A process' connection. ``faults`` befall its next requests, one each.

    ``"down"``: it never arrives; ``"lost"``: its answer doesn't; ``"late"``: it arrives later,
    its answer never; a function: it is run before.
    """

    hosts = "simulated"

    def __init__(self, ensemble: Ensemble, number: int) -> None:
        self.ensemble = ensemble
        self.id = number
        self.faults: list[str | Callable[[], None] | None] = []

    def ask(self, request: Callable[[Any], Any], timeout: float) -> Any:
        fault = self.faults.pop(0) if self.faults else None
        if callable(fault):
            fault()
        elif fault == "late":
            self.ensemble.late.append(request)
        self.ensemble.session = self.id
        answer = request(self.ensemble) if fault not in ("down", "late") else None
        if isinstance(fault, str):
            raise RegistryUnavailable(f"a request was {fault}") from exceptions.ConnectionLoss()
        return answer

    def start_over(self) -> None:
        """Nothing to drop."""

    def close(self) -> None:
        self.ensemble.end_session(self.id)
