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
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_schema_conformance,
    unsupported_method,
)

from django_idgen import next_id, segments
from django_idgen.core.encoding import TextForm
from django_idgen.core.errors import ConfigurationError, InvalidTag
from django_idgen.core.segment import MAX_TAG_LENGTH, check_tag
from django_idgen.ops.tags.edits import resume_tag
from django_idgen.process.maps import current_settings
from django_idgen.rest import urls
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


with override_settings(**WITHOUT_SESSIONS):
    make: Any = SchemaGenerator
    found = make(urlconf=urls.__name__).get_schema(request=None, public=True)
    schema = schemathesis.openapi.from_dict({**found, "servers": [{"url": "/idgen"}]})
schema.app = WSGIHandler()
CHECKS = (
    not_a_server_error,
    response_schema_conformance,
    content_type_conformance,
    ignored_auth,
    unsupported_method,
)


# On push one operation, with a path, fields and a list.
asked = schema if LONG else schema.include(operation_id="tags_ids_create")


@asked.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_nothing_that_is_sent_surprises_the_api(case: Any, service: Service) -> None:
    """No 500; answers as described; nobody let in without credentials."""
    if case.meta.generation.mode.is_positive:
        service.fit(case)
    scheme = scheme_of(case.operation.definition.raw)
    case.call_and_validate(
        headers={"Authorization": service.credentials[scheme]}, checks=list(CHECKS)
    )


def test_what_is_made_to_fit_is_described() -> None:
    """An operation with another name would be asked with data that never fit, or not at all."""
    names = {each["operationId"] for path in found["paths"].values() for each in path.values()}
    assert names > Service.FITS.keys()
    assert "tags_ids_create" in names


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
        if "tag" in path and not _may_be_tag(_tag(path)):
            return
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
        try:
            form = TextForm(data.get("form", "decimal"), data.get("prefix", ""))
        except ConfigurationError:
            return
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
        "decode_retrieve": any_id,
        "decode_create": any_id,
        "tags_create": new_tag,
        "tags_skip_create": skip,
        "tags_segment_create": segment,
        "generators_leases_create": borrowed,
        "generators_leases_renew_create": borrowed,
        "generators_leases_release_create": borrowed,
        "generators_leases_renew_seen_create": borrowed,
        "leases_release_create": held,
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
