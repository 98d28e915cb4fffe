"""The mark file of a static worker id: JSON, replaced whole, on the disk before it counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..core.errors import NamespaceMismatch, RegistryUnavailable
from ..core.lease import PROTOCOL_VERSION, Mark, Namespace
from ..core.lending import check_fingerprint, fingerprint_text
from .lockfile import file_name

__all__ = ["MarkFile"]

_TYPES = {"namespace": str, "worker": int, "token": str, "start": int, "until": int, "holder": str}


class MarkFile:
    """Reads and writes one mark. The caller holds the lock of the worker id."""

    def __init__(self, directory: Path, namespace: Namespace, worker: int) -> None:
        self.namespace = namespace
        self.worker = worker
        self.path = directory / file_name(namespace, worker, "mark")

    def read(self) -> Mark | None:
        """The mark, or ``None`` if there is no file.

        Raises :class:`NamespaceMismatch` if it was made under other settings, and
        :class:`RegistryUnavailable` if it is damaged: never a fresh start.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        stored = self._parsed(text)
        if stored["namespace"] != self.namespace.name:
            raise NamespaceMismatch(
                self.namespace.name, "namespace", stored["namespace"], self.namespace.name
            )
        check_fingerprint(self.namespace, json.dumps(stored["fingerprint"], sort_keys=True))
        return Mark(
            self.worker, stored["token"], stored["start"], stored["until"], 0, stored["holder"]
        )

    def last_holder(self) -> str:
        """Who held it last; empty if unknown. Needs no lock, and is only a hint."""
        try:
            return str(json.loads(self.path.read_bytes())["holder"])
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def write(self, mark: Mark) -> None:
        """Put ``mark`` on the disk, file and directory entry. Raises ``OSError``."""
        record = {
            "protocol": PROTOCOL_VERSION,
            "namespace": self.namespace.name,
            "worker": mark.worker,
            "token": mark.token,
            "start": mark.start,
            "until": mark.until,
            "holder": mark.holder,
            "fingerprint": json.loads(fingerprint_text(self.namespace)),
        }
        new = self.path.with_suffix(".mark-new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
        _sync_directory(self.path.parent)

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            stored = json.loads(text)
        except ValueError:
            raise self._damaged(f"it is no JSON: {text[:40]!r}") from None
        if not isinstance(stored, dict):
            raise self._damaged(f"it is no JSON object: {text[:40]!r}")
        protocol = stored.get("protocol")
        if isinstance(protocol, int) and protocol > PROTOCOL_VERSION:
            raise RegistryUnavailable(
                f"The mark file {str(self.path)!r} was written by a newer django_idgen (protocol "
                f"{protocol}, this one knows {PROTOCOL_VERSION}). Upgrade this process."
            )
        for key, kind in _TYPES.items():
            if not isinstance(stored.get(key), kind):
                raise self._damaged(f"{key} is {stored.get(key)!r}")
        if stored["worker"] != self.worker or not isinstance(stored.get("fingerprint"), dict):
            raise self._damaged("it is not of this worker id")
        return stored

    def _damaged(self, reason: str) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"The mark file {str(self.path)!r} is damaged ({reason}), so it is not known which "
            f"ticks worker id {self.worker} has used. Restore it; or stop every process that "
            f"uses the worker id and delete the file: the next one then starts past every window."
        )


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
