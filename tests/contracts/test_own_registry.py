"""The registry that the page on the architecture shows keeps the contract."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from tests.core.json_leases import SHOWN, JsonLeases

from .lease_contract import LeaseContract
from .lenders import Lender

MOST_LINES = 80


def made(namespace: Namespace, **options: Any) -> Registry:
    registry: Registry = JsonLeases(namespace, **options)
    return registry


class JsonLender(Lender):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = directory / "leases.json"

    def make(self, namespace: Namespace) -> Registry:
        return made(namespace, path=self.path, now_us=self.time.read)

    def forget(self) -> None:
        if not self.path.exists():
            return
        words = json.loads(self.path.read_text())
        self.path.write_text(json.dumps({**words, "marks": []}))

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        return partial(made, namespace, path=self.path)


class TestJsonLeases(LeaseContract):
    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        with tempfile.TemporaryDirectory() as directory:
            yield JsonLender(Path(directory))


def test_it_is_short() -> None:
    """A registry of one's own is one file of some 80 lines."""
    assert SHOWN.count("\n") <= MOST_LINES
