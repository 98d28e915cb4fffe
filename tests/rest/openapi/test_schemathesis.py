"""The API does what its description says, whatever is sent: schemathesis finds nothing.

Requests go through the WSGI application, ids come from a real PostgreSQL where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar, cast
from urllib.parse import unquote, urlencode

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.test import Client, override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from django_idgen import next_id, segments
from django_idgen.core.encoding import TextForm
from django_idgen.core.errors import InvalidTag
from django_idgen.core.segment import MAX_TAG_LENGTH, check_tag
from django_idgen.ops.tags.edits import resume_tag
from django_idgen.process.maps import current_settings
from django_idgen.rest.openapi import describe
from tests.rest.openapi.conftest import WITHOUT_SESSIONS, scheme_of
from tests.tiers import LONG

Data = dict[str, Any]
EXAMPLES = 5
"""At random, for an operation: many times as many go through the edges of each field."""
TAGS = ("orders", "a/b", "é 1")


def _may_be_tag(text: str) -> bool:
    """Or could, were it shorter."""
    try:
        check_tag(text[:MAX_TAG_LENGTH])
    except InvalidTag:
        return False
    return True


# What can't be said in a pattern of JSON Schema. Of these few values, the edges among them and
# what is too long, one of a certain length is found at once; at random it takes half a minute.
LENGTHS = tuple(edge + by for edge in (2, 64, 128, 200, 256) for by in (-1, 0, 1))
WORDS = ("a", ".", "..", "web-1", "é ñ", "a.b-c", *("x" * length for length in LENGTHS))
schemathesis.openapi.format(
    "idgen-tag", st.sampled_from((*TAGS, *filter(_may_be_tag, WORDS), "a.b/.c", "_"))
)
schemathesis.openapi.format("idgen-words", st.sampled_from(WORDS))
schemathesis.openapi.format("idgen-text", st.sampled_from((*WORDS, " ", "\u202e", "\U0001f600")))

with override_settings(**WITHOUT_SESSIONS):
    schema = schemathesis.openapi.from_dict({**describe(), "servers": [{"url": "/idgen"}]})
schema.app = WSGIHandler()
schema.config.checks.positive_data_acceptance.expected_statuses = ["200", "201"]


# On push one operation, with a path, fields and a list.
asked = schema if LONG else schema.include(operation_id="take_ids_of_tag")


@asked.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_nothing_that_is_sent_surprises_the_api(case: Any, service: Service) -> None:
    """No 500; statuses, types and answers as described; wrong data refused; right data taken,
    every time; nobody let in without credentials; no method that is not described."""
    if case.meta.generation.mode.is_positive:
        service.fit(case)
    scheme = scheme_of(case.operation.definition.raw)
    case.call_and_validate(headers={"Authorization": service.credentials[scheme]})


# --- what only the service knows -----------------------------------------------------------


@pytest.fixture(scope="module")
def service(credentials: dict[str, str]) -> Service:
    """One that has run for a while."""
    for tag in TAGS:
        segments[tag].next_id()
    return Service(credentials)


class Service:
    """Makes data that are right by the description fit how things stand.

    A tag has to be there, a lease be held, a mark not lie too far ahead: no schema can say
    so. All else is sent as it was drawn.
    """

    def __init__(self, credentials: dict[str, str]) -> None:
        self.credentials = credentials
        self._numbers = count()
        self._terms = self._told("generators/default/leases")

    def fit(self, case: Any) -> None:
        path = case.path_parameters
        if "alias" in path:
            path["alias"] = "default"
        if "tag" in path:
            segments[_tag(path)].next_id()
            resume_tag(_tag(path))
        fit = self.FITS.get(case.operation.definition.raw["operationId"])
        if fit is not None:
            fit(self, case.query if case.method == "GET" else case.body, path)

    def any_id(self, data: Data, path: Data) -> None:
        """One that has been made, in the form that is named."""
        form = TextForm(data.get("form", "decimal"), data.get("prefix", ""))
        made = form.format(next_id())
        data["id"] = int(made) if isinstance(data["id"], int) and form.is_plain else made

    def new_tag(self, data: Data, path: Data) -> None:
        """One that is not there yet, of about the same length."""
        end = f"-{next(self._numbers)}"
        data["tag"] = data["tag"][: MAX_TAG_LENGTH - len(end)] + end

    def skip(self, data: Data, path: Data) -> None:
        """Ahead, by not too many."""
        if "to" in data:
            least = self._stands_at(_tag(path))
            data["to"] = _as(data["to"], least + 1 + int(data["to"]) % 1_000_000)

    def segment(self, data: Data, path: Data) -> None:
        """Of the tag of the URL, from where it stands at most, as long as may be lent."""
        if "tag" in data:
            data["tag"] = _tag(path)
        _lower(data, "floor", self._stands_at(_tag(path)))
        _lower(data, "at_least", current_settings().rest.max_segment)
        self.installation(data)

    def borrowed(self, data: Data, path: Data) -> None:
        """With the settings of the service; a lease that is held; ticks that have been."""
        self.installation(data)
        if "fingerprint" in data:
            data["fingerprint"] = self._terms["fingerprint"]
            _lower(data, "window", int(self._terms["window_ticks"]))
            _lower(data, "ahead", int(self._terms["ahead_ticks"]))
        lease = self._borrow()
        if "lease" in data:
            data["lease"] = lease
        for name in ("not_before", "last_tick"):
            _lower(data, name, int(lease["start"]))

    def held(self, data: Data, path: Data) -> None:
        """A worker id that somebody has, and what its lease is called."""
        path["worker"] = worker = self._borrow()["worker"]
        leases = self._told("leases/?limit=1000", scheme="basicAuth")["results"]
        data["lease"] = next(each["lease"] for each in leases if each["worker"] == worker)

    def installation(self, data: Data) -> None:
        if "installation" in data:
            data["installation"] = self._terms["installation"]

    FITS: ClassVar[dict[str, Callable[[Service, Data, Data], None]]] = {
        "decode_id": any_id,
        "take_apart_id": any_id,
        "make_tag": new_tag,
        "skip_tag": skip,
        "take_segment": segment,
        "borrow_worker": borrowed,
        "renew_lease": borrowed,
        "release_lease": borrowed,
        "renew_seen_leases": borrowed,
        "free_worker": held,
    }

    def _stands_at(self, tag: str) -> int:
        found = self._told(f"tags/?{urlencode({'tag': tag})}", scheme="basicAuth")
        return int(found["results"][0]["max_id"])

    def _borrow(self) -> Data:
        terms = self._told("generators/default/leases")
        asked = {"fingerprint": terms["fingerprint"], "window": terms["window_ticks"]}
        return cast(Data, self._told("generators/default/leases", asked)["lease"])

    def _told(self, path: str, asked: Data | None = None, scheme: str = "idgenToken") -> Data:
        answer = Client().generic(
            "GET" if asked is None else "POST",
            f"/idgen/{path}",
            b"" if asked is None else json.dumps(asked).encode(),
            content_type="application/json",
            headers={"Authorization": self.credentials[scheme]},
        )
        assert answer.status_code == 200, answer.content
        return cast(Data, answer.json())


def _tag(path: Data) -> str:
    return unquote(path["tag"])


def _as(drawn: int | str, number: int) -> int | str:
    """A number in the form of another."""
    return str(number) if isinstance(drawn, str) else number


def _lower(data: Data, name: str, most: int) -> None:
    if data.get(name) is not None:
        data[name] = _as(data[name], min(int(data[name]), most))
