"""Hosts on one machine: network namespaces that one bridge connects, and that can be cut apart."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

import pytest

from tests import servers

_numbers = count(1)


class Network:
    """A network of ``hosts``, each in a namespace of its own. The bridge between them has a filter.

    Needs root, and the programs ``ip`` and ``nft``.
    """

    def __init__(self, hosts: Sequence[str], stack: ExitStack) -> None:
        self._stack = stack
        self._mark = f"ig{os.getpid()}n{next(_numbers)}"
        self._addresses = {host: f"10.77.0.{number}" for number, host in enumerate(hosts, 1)}
        self._switch = f"{self._mark}-switch"
        self._make_namespace(self._switch)
        self._run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        self._run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        for number, host in enumerate(hosts, 1):
            self._connect(host, f"{self._mark}v{number}")
        self._filter("add", "table", "bridge", "cuts")
        chain = "{ type filter hook forward priority 0 ; }"
        self._filter("add", "chain", "bridge", "cuts", "forward", chain)

    def _make_namespace(self, name: str) -> None:
        self._run("ip", "netns", "add", name)
        self._stack.callback(self._run, "ip", "netns", "del", name)
        self._run("ip", "-n", name, "link", "set", "lo", "up")

    def _connect(self, host: str, port: str) -> None:
        name = self._namespace(host)
        self._make_namespace(name)
        self._run(
            "ip", "-n", self._switch, "link", "add", port, "type", "veth",
            "peer", "name", "eth0", "netns", name,
        )  # fmt: skip
        self._run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")
        address = f"{self.address(host)}/24"
        self._run("ip", "-n", name, "address", "add", address, "dev", "eth0")
        self._run("ip", "-n", name, "link", "set", "eth0", "up")

    def _namespace(self, host: str) -> str:
        return f"{self._mark}-{host}"

    def address(self, host: str) -> str:
        return self._addresses[host]

    def inside(self, host: str) -> list[str]:
        """The words before a command that runs it on ``host``."""
        return ["ip", "netns", "exec", self._namespace(host)]

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        """Nothing from ``one`` reaches ``other``; unless ``both`` is False, nor the other way.

        Connections stay open, and silent.
        """
        for sender, receiver in ((one, other), (other, one))[: 2 if both else 1]:
            self._filter(
                "add", "rule", "bridge", "cuts", "forward",
                "ip", "saddr", self.address(sender), "ip", "daddr", self.address(receiver), "drop",
            )  # fmt: skip

    def heal(self) -> None:
        """All reach all."""
        self._filter("flush", "chain", "bridge", "cuts", "forward")

    def _filter(self, *words: str) -> None:
        self._run("ip", "netns", "exec", self._switch, "nft", *words)

    def _run(self, *words: str) -> None:
        subprocess.run(words, check=True, capture_output=True, timeout=30)


@contextmanager
def network(*hosts: str) -> Iterator[Network]:
    """A network for a block; skips the test where this system allows none."""
    for program in ("ip", "nft"):
        if shutil.which(program) is None:
            servers.absent(f"No {program}. Install it: 'apt-get install iproute2 nftables'.")
    with ExitStack() as stack:
        try:
            made = Network(hosts, stack)
        except subprocess.CalledProcessError as error:
            with suppress(subprocess.CalledProcessError):
                stack.close()
            pytest.skip(f"Network namespaces are not allowed here: {error.stderr.decode().strip()}")
        yield made


def is_reached(made: Network, sender: str, receiver: str, port: int) -> bool:
    """Whether ``sender`` can connect to ``port`` of ``receiver``, within 1 s."""
    words = ["bash", "-c", f"exec 3<>/dev/tcp/{made.address(receiver)}/{port}"]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [*made.inside(sender), *words], timeout=1, capture_output=True, check=False
        )
        return done.returncode == 0
    return False
