"""Every answer and every error of every old server, to the byte, with its headers.

``answers/*.txt`` holds exchanges in order: who asks for what, then status, headers and body. Line
by line: ``IDGEN`` sets settings, ``marks`` says how far each tag has come, ``steps`` says their
steps, ``!`` names a fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.db import OperationalError
from django.test import Client

from django_idgen.core.errors import (
    LeaseExpired,
    NoFreeWorker,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.core.segment_generator import SegmentGenerator
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.database import DatabaseLeases
from django_idgen.models import LeafAlloc
from django_idgen.rest.authentication import TOKENS
from django_idgen.rest.tokens import make_token

from .conftest import TAG, marks

FORM = "application/x-www-form-urlencoded"
NEVER_CACHED = {
    "Cache-Control": "max-age=0, no-cache, no-store, must-revalidate, private",
    "Expires": "Thu, 01 Jan 1970 00:00:00 GMT",
}
FAULTS: dict[str, tuple[tuple[Any, str, Exception], ...]] = {
    "no-segment": tuple(
        (SegmentGenerator, name, SegmentUnavailable("x")) for name in ("next_id", "next_ids")
    ),
    "no-ids-left": ((SegmentGenerator, "next_id", SegmentExhausted("x")),),
    "no-lease": ((SnowflakeGenerator, "next_id", LeaseExpired("x")),),
    "no-worker": ((DatabaseLeases, "acquire", NoFreeWorker("shop", range(4))),),
    "no-database": ((TOKENS, "_find", OperationalError("away")),),
}
CHANGING = (
    (r"\b\d{16,18}\b", "<id>"),
    (r'"(timestamp|lastTimeStamp)":\d{13}', r'"\1":<ms>'),
    (r'"machineId":\d+', '"machineId":<worker>'),
    (r'"UpdateTime":"[^"]+\+00:00"', '"UpdateTime":<time>'),
    (r"(Retry-After:|available in|next one in) \d{2,4}\b", r"\1 <s>"),
)


def made(name: str, tags: list[str], generators: list[str], leases: Sequence[str] = ()) -> str:
    return make_token(name, tags=tags, generators=generators, leases=leases)[1]


class Scene:
    """Plays a file of exchanges."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._secrets = {
            "program": made("p", [TAG, "*.orders"], ["*"], ["default"]),
            "stranger": made("s", ["others"], ["second"]),
            "guess": f"idgen_{'x' * 43}",
        }
        self._clients = {name: Client() for name in ("nobody", "user", "maker")}
        for name, permissions in (("user", ()), ("maker", ("add_leafalloc", "change_leafalloc"))):
            somebody = User.objects.create_user(name)
            somebody.user_permissions.set(Permission.objects.filter(codename__in=permissions))
            self._clients[name].force_login(somebody)
        for name, secret in self._secrets.items():
            self._clients[name] = Client(headers={"Authorization": f"Bearer {secret}"})
        self._clients["browser"] = Client(headers={"Accept": "text/html,*/*;q=0.8"})

    def line(self, line: str) -> list[str]:
        """The lines that follow on ``line``."""
        words = line.split(" ")
        if words[0] == "IDGEN":
            self._settings.IDGEN = {**self._settings.IDGEN, **json.loads(line[6:])}
            cache.clear()
        if line == "marks":
            return [f"  {json.dumps(marks(), sort_keys=True)}"]
        if line == "steps":
            steps = LeafAlloc.objects.order_by("pk").values_list("pk", "step")
            return [f"  {json.dumps(dict(steps))}"]
        if words[0] not in self._clients:
            return []
        for name, secret in self._secrets.items():
            line = line.replace(f"<{name}>", secret)
        words = line.split(" ")
        fault = FAULTS[words.pop()[1:]] if words[-1].startswith("!") else ()
        who, method, url, *body = words
        with ExitStack() as stack:
            for target, name, error in fault:
                stack.enter_context(patch.object(target, name, side_effect=error))
            content = " ".join(body)
            kind = "application/json" if content[:1] in "{[" else FORM
            ask = self._clients[who].generic
            return [self._written(ask(method, url, content, content_type=kind))]

    def _written(self, answer: Any) -> str:
        headers = {**answer.headers}
        cached = [name for name, value in NEVER_CACHED.items() if headers.pop(name, "") != value]
        told = [headers.pop("Content-Type"), *(f"{name}: {headers[name]}" for name in headers)]
        told += ["may be cached"] if cached else []
        text = f"  {answer.status_code} {', '.join(told)} | {answer.content.decode()}"
        for pattern, stands in CHANGING:
            text = re.sub(pattern, stands, text)
        for name, secret in self._secrets.items():
            text = text.replace(secret, f"<{name}>")
        return text


@pytest.mark.parametrize("name", ["leaf", "go_leaf", "tinyid", "cosid", "finger_mark"])
def test_each_answer_is_the_old_servers(tag: str, settings: Any, name: str) -> None:
    """Status, headers and body; nothing is taken or made but what they say."""
    path = Path(__file__).parent / "answers" / f"{name}.txt"
    scene, written = Scene(settings), path.read_text().splitlines()
    played: list[str] = []
    for line in written:
        if not line.startswith("  "):
            played += [line, *scene.line(line)]
    assert played == written
