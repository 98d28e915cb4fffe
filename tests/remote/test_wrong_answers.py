"""Whatever a server, or what stands before it, answers: an error that says so, never a wrong id."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from django_idgen.client import described
from django_idgen.core.errors import (
    ConfigurationError,
    InvalidTag,
    LeaseLost,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
    SegmentExhausted,
    SegmentUnavailable,
    TimeExhausted,
    TooFarAhead,
)
from django_idgen.core.lease import Lease
from django_idgen.core.segment import MAX_ID, Demand
from django_idgen.leases.http import HttpLeases
from django_idgen.remote.wire import Wire
from django_idgen.sources.http import HttpSource
from django_idgen.testing.contracts import NAMESPACE
from tests.tables import refused

from .scripted import Said, Script, as_json, closed_url, refusal, scripted, segment

HTML = {"Content-Type": "text/html"}
ODD: list[object] = [
    *(0, -1, 1.5, 2**31, 2**63 - 1, 2**63, 2**64, 10**400, float("inf")),
    *(str(2**63), "", "x", None, True, []),
]
"""What may stand in the place of a number or text."""


@pytest.fixture
def fetch() -> Iterator[Callable[..., Any]]:
    """What a new source makes of one answer, which it asks for once."""
    answer: Script = lambda path, asked: segment(asked)  # noqa: E731

    def fetch(said: Said | None = None, *, floor: int = 0, **changes: object) -> Any:
        nonlocal answer
        answer = lambda path, asked: said or segment(asked, **changes)  # noqa: E731
        server.requests.clear()
        source = HttpSource(base_urls=server.url, token="t")
        try:
            return source.fetch("t", floor=floor)
        finally:
            source.close()
            assert len(server.posts) == 1, "sent again"

    with scripted(lambda path, asked: answer(path, asked)) as server:
        yield fetch


def test_a_sound_answer_is_a_segment(fetch: Callable[..., Any]) -> None:
    """What the tests below change one thing of is taken as it is."""
    assert fetch(floor=7).ids() == range(7, 17)


IMPOSSIBLE: list[dict[str, object]] = [
    {"tag": "other"},
    {"start": "0"},
    {"start": "-5"},
    {"start": "99"},
    {"start": "1e1"},
    {"start": 1.0},
    {"start": True},
    {"start": None},
    {"start": "١"},
    {"start": "9" * 5000},
    {"stop": "5"},
    {"stop": str(MAX_ID + 2)},
    {"stop": None},
    {"step": 0},
    {"step": 10**10},
    {"delta": 0},
    {"delta": None},
    {"installation": None},
    {"installation": ""},
    {"installation": 7},
    {"installation": "x" * 65},
    {"nonce": "another"},
    {"nonce": ["x"]},
    {"max_segment": 0},
]


def test_a_segment_that_cannot_be_right_is_refused(fetch: Callable[..., Any]) -> None:
    """Numbers out of range, another tag, another request's answer: no segment."""
    for changes in IMPOSSIBLE:
        assert "?." not in str(refused(SegmentUnavailable, fetch, floor=6, **changes))


def test_whatever_stands_in_a_segment(fetch: Callable[..., Any]) -> None:
    """Hazard 118: an error that says so, or a segment of ids from the floor on."""
    for name, value in product(("start", "stop", "step", "delta", "max_segment"), ODD):
        try:
            ids = fetch(floor=6, **{name: value}).ids()
        except SegmentUnavailable:
            continue
        assert 6 <= ids[0] <= ids[-1] <= MAX_ID, (name, value)


def test_a_segment_below_the_floor_is_refused(fetch: Callable[..., Any]) -> None:
    """A service whose table was restored can't have a process repeat its ids."""
    with pytest.raises(SegmentUnavailable, match="'start'"):
        fetch(floor=50, start="49", stop="59")


NO_GRANT: list[tuple[Said, str]] = [
    ((200, HTML, b"<html>Welcome</html>"), "text/html"),
    ((200, {"Content-Type": "application/json"}, b'{"tag": "t", "sta'), "not JSON"),
    ((200, {"Content-Type": "application/json"}, b"[1]"), "not JSON"),
    ((200, {"Content-Type": "application/json"}, b"[" * 60_000), "not JSON"),
    ((200, {"Content-Type": "application/json"}, b"\xff\xfe"), "not JSON"),
    ((200, {"Content-Type": "application/json"}, b" " * 100_000), "more than"),
    (
        (
            200,
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
            gzip.compress(json.dumps({"a": 1}).encode()),
        ),
        "not JSON",
    ),
    ((204, {}, b""), "204"),
    ((302, {"Location": "/login"}, b""), "redirect"),
    ((307, {"Location": "/idgen/tags/t/segment/"}, b""), "redirect"),
    ((500, HTML, b"<h1>Server Error (500)</h1>"), "500"),
    ((502, HTML, b"Bad Gateway"), "502"),
    ((503, HTML, b"upstream reset"), "503"),
    ((504, HTML, b"Gateway Timeout"), "504"),
    ((404, HTML, b"Not Found"), "base_urls"),
    (as_json({"detail": "No.", "code": "not_authenticated"}, 401), "access token"),
    (as_json({"detail": "No.", "code": "permission_denied"}, 403), "access token"),
    (as_json({"detail": "Slowly.", "code": "throttled"}, 429), "Slowly"),
    (as_json({"detail": "Away.", "code": "unavailable"}, 503), "Away"),
    (as_json({"detail": "Too far.", "code": "skip_too_far"}, 403), "Too far"),
    (as_json({"floor": ["Wrong."]}, 400), "Wrong"),
]


def test_what_is_no_grant_is_an_error_that_says_why(fetch: Callable[..., Any]) -> None:
    """Pages of proxies, redirects, truncated and huge bodies, refusals: named, not sent again."""
    for said, words in NO_GRANT:
        refused(SegmentUnavailable, fetch, said, match=words)


def test_refusals_keep_their_meaning(fetch: Callable[..., Any]) -> None:
    """The end of the ids, and a tag that the service can't have, are what they are here."""
    refused(SegmentExhausted, fetch, refusal("exhausted", 409))
    mixed = refusal("installation_mismatch", 409, expected="one", installation="two")
    refused(ConfigurationError, fetch, mixed, match=r"two.*one")
    with scripted(lambda path, asked: segment(asked)) as server:
        source = HttpSource(base_urls=server.url)
        for tag in ("", "x" * 129, "a\0", None):
            refused(InvalidTag, source.fetch, tag)
        assert server.requests == []


def test_any_tag_arrives_as_it_is() -> None:
    """Slashes, dots and percent signs reach the service, in the URL and in the body."""
    with scripted(lambda path, asked: segment(asked)) as server:
        source = HttpSource(base_urls=server.url)
        for tag in ("a/b", "a//b", "..", ".", "a/../b", "ä?#%2F", "🎟", "a;b", "+&"):
            source.fetch(tag)
            _, path, body, _ = server.requests[-1]
            assert (unquote(path), body["tag"]) == (f"/idgen/tags/{tag}/segment", tag)
        source.close()


def test_more_than_the_service_lends_is_taken_in_parts() -> None:
    """A demand past the service's limit gets what there is; from then on no more is asked for."""

    def script(path: str, asked: dict[str, Any]) -> Said:
        if asked["at_least"] > 100:
            return as_json({"at_least": ["100 at most."]}, 400)
        return segment(asked, max_segment=100)

    with scripted(script) as server:
        source = HttpSource(base_urls=server.url)
        source.fetch("t", demand=Demand(at_least=5000))
        source.fetch("t", demand=Demand(at_least=5000))
        source.close()
        assert [body["at_least"] for body in server.posts] == [5000, 1, 100]


# --- whose ids -----------------------------------------------------------------------------


def test_a_second_database_is_refused_before_the_first_id() -> None:
    """Two services of different databases in one list: no id is taken of the wrong one."""
    with (
        scripted(lambda path, asked: segment(asked)) as one,
        scripted(lambda path, asked: segment(asked, installation="two")) as two,
    ):
        for kind in (HttpSource, partial(HttpLeases, NAMESPACE)):
            refused(ConfigurationError, kind, base_urls=[one.url, two.url], match="'installation'")
        source = HttpSource(base_urls=[two.url, one.url], installation="one")
        with pytest.raises(ConfigurationError, match=r"two.*one"):
            source.fetch("t")
        registry = HttpLeases(NAMESPACE, base_urls=[two.url, one.url], installation="one")
        with pytest.raises(ConfigurationError, match=r"two.*one"):
            registry.acquire(holder="a")
        assert [body["installation"] for body in two.posts] == ["one", "one"]
        assert one.posts == []
        source.close()
        registry.close()


def test_a_service_with_several_databases() -> None:
    """``installation`` lists them. Each tag stays with the one that answered first."""
    whose = {"t": "one", "u": "two"}

    def answer(path: str, asked: dict[str, Any]) -> Said:
        return segment(asked, installation=whose[asked["tag"]])

    with scripted(answer) as server, scripted(answer) as other:
        urls = [server.url, other.url]
        source = HttpSource(base_urls=urls, installation=["one", "two"])
        first = source.fetch("t")
        source.fetch("u")
        whose["t"], whose["u"] = "two", "three"
        for tag in whose:
            with pytest.raises(ConfigurationError, match="Two databases"):
                source.fetch(tag, floor=first.stop)
        assert [body.get("installation") for body in server.posts] == [None, None, "one", "two"]
        source.close()


def test_a_database_that_comes_later_is_refused_too() -> None:
    """Once a process has ids of one installation, an answer of another one is no segment."""
    whose = ["one"]
    with scripted(lambda path, asked: segment(asked, installation=whose[0])) as server:
        source = HttpSource(base_urls=server.url)
        first = source.fetch("t")
        whose[0] = "two"
        with pytest.raises(ConfigurationError, match="Two databases"):
            source.fetch("t", floor=first.stop)
        assert [body.get("installation") for body in server.posts] == [None, "one"]
        assert source.fetch("another tag").start == 1  # a router may have it elsewhere
        source.close()


def test_the_installation_can_be_laid_down() -> None:
    """With ``installation`` the very first answer of another database is refused."""
    with scripted(lambda path, asked: segment(asked)) as server:
        source = HttpSource(base_urls=server.url, installation="mine")
        with pytest.raises(ConfigurationError, match=r"mine.*one"):
            source.fetch("t")
        assert server.posts[0]["installation"] == "mine"
        source.close()


# --- leases --------------------------------------------------------------------------------

GRANT = {"worker": 1, "token": "x" * 32, "start": "100", "until": "200", "generation": 3}


def granting(lease: object, asked: dict[str, Any], **changes: object) -> Said:
    """The answer of a sound service that lends ``lease``, but for ``changes``."""
    now = {"now_us": "1735689700000000", "installation": "one", "nonce": asked.get("nonce")}
    return as_json({"lease": lease, **now, **changes})


def lend(lease: object = GRANT, **changes: object) -> Any:
    """What a registry makes of one answer, which it asks for once."""
    with scripted(lambda path, asked: granting(lease, asked, **changes)) as server:
        registry = HttpLeases(NAMESPACE, base_urls=server.url)
        try:
            return registry.acquire(holder="a", not_before=50, avoid=2)
        finally:
            registry.close()
            assert len(server.posts) == 1


def test_a_sound_grant_is_a_lease() -> None:
    """What the tests below change one thing of; its token is shown to nobody."""
    grant = lend()
    assert (grant.lease.worker, grant.lease.start, grant.lease.until) == (1, 100, 200)
    assert grant.reading.registry_us == 1735689700000000
    assert "xxx" not in repr(grant)


NO_LEASE: dict[str, list[object]] = {
    "worker": [4, -1, 2, "one"],
    "start": ["49"],
    "until": ["99", str(2**41 + 1), None],
    "token": ["", 7, "x" * 200],
    "generation": [-1],
}


def test_a_lease_that_cannot_be_right_is_refused() -> None:
    """A worker id outside the range or to be avoided, a window too early or past the layout."""
    for name, values in NO_LEASE.items():
        for value in values:
            refused(RegistryUnavailable, lend, {**GRANT, name: value})


def test_whatever_stands_in_a_grant() -> None:
    """Hazard 118: an error that says so, or a lease of numbers that fit."""
    wrong: dict[str, object] = {}

    def answer(path: str, asked: dict[str, Any]) -> Said:
        return granting({**GRANT, **wrong}, asked, **wrong)

    with scripted(answer) as server:
        for name, value in product((*GRANT, "now_us"), ODD):
            wrong = {name: value}
            registry = HttpLeases(NAMESPACE, base_urls=server.url)
            try:
                lease = registry.acquire(holder="a", not_before=50, avoid=2).lease
            except RegistryUnavailable:
                continue
            finally:
                registry.close()
            assert lease.worker in NAMESPACE.workers, wrong
            assert 50 <= lease.start <= lease.until <= 2**41, wrong


def test_a_grant_with_parts_missing_is_refused() -> None:
    """No lease, no time, or not the answer of this request."""
    for lease in (None, []):
        refused(RegistryUnavailable, lend, lease)
    for change in ({"now_us": "x"}, {"nonce": 1}):
        refused(RegistryUnavailable, lend, **change)


def test_a_renewal_is_of_the_same_lease_and_lowers_nothing() -> None:
    """An answer about another lease, or with an earlier end, is refused."""
    lease = Lease("contract", 1, "x" * 32, 100, 200, 3)
    answers: list[dict[str, object]] = [{}]

    with scripted(lambda path, asked: granting({**GRANT, **answers[0]}, asked)) as server:
        registry = HttpLeases(NAMESPACE, base_urls=server.url)
        assert registry.renew(lease, last_tick=120).lease == lease
        for wrong in ({"until": "199"}, {"start": "101"}, {"token": "y"}, {"worker": 2}):
            answers[0] = wrong
            refused(RegistryUnavailable, registry.renew, lease, last_tick=120)
        registry.close()


REFUSALS = [
    (refusal("no_free_worker", 503), NoFreeWorker),
    (refusal("time_exhausted", 503), TimeExhausted),
    (refusal("settings_differ", 409), ConfigurationError),
    (refusal("too_far_ahead", 409), RegistryUnavailable),
    (refusal("too_far_ahead", 409, asked="9", latest="8"), TooFarAhead),
    (refusal("permission_denied", 403), RegistryUnavailable),
    (refusal("lease_lost", 409), LeaseLost),
    (
        refusal("namespace_mismatch", 409, setting="epoch_us", stored=1, configured=2),
        NamespaceMismatch,
    ),
]


def test_refusals_of_leases_keep_their_meaning() -> None:
    """What the service's registry raises is raised here, after one request."""
    answers = [said for said, _ in REFUSALS]
    lease = Lease("contract", 1, "t" * 32, 1, 2)
    with scripted(lambda path, asked: answers.pop(0)) as server:
        for _, kind in REFUSALS:
            registry = HttpLeases(NAMESPACE, base_urls=server.url)
            assert type(refused(kind, registry.renew, lease, last_tick=1)) is kind
            registry.close()
    assert {path for _, path, _, _ in server.requests} == {
        "/idgen/generators/contract/leases/renew"
    }
    assert len(server.posts) == len(server.requests) == len(REFUSALS)


# --- several addresses -----------------------------------------------------------------------


def test_an_address_where_nobody_listens_is_passed_over() -> None:
    """The same call goes on to the next one; later calls begin there."""
    with scripted(lambda path, asked: segment(asked)) as server:
        source = HttpSource(base_urls=[closed_url(), server.url], installation="one")
        assert [source.fetch("t").start for _ in range(3)] == [1, 1, 1]
        assert len(server.posts) == 3
        source.close()


def test_an_address_that_grants_nothing_is_passed_over() -> None:
    """The service's own refusal is no lost grant: another one is asked in the same call."""
    status = [0]
    with (
        scripted(lambda path, asked: refusal("no", status[0])) as one,
        scripted(lambda path, asked: segment(asked)) as two,
    ):
        for status[0] in (401, 429, 503):
            one.requests.clear()
            two.requests.clear()
            source = HttpSource(base_urls=[one.url, two.url], installation="one")
            assert source.fetch("t").start == 1
            assert (len(one.posts) <= 1, len(two.posts)) == (True, 1)
            source.close()


def test_an_answer_that_tells_nothing_is_a_lost_grant() -> None:
    """A proxy's page may come after the grant: nothing is sent again, the next call goes on."""
    status = [0]

    def script(path: str, asked: dict[str, Any]) -> Said:
        return (status[0], HTML, b"oops") if asked else segment(asked)

    with scripted(script) as one, scripted(lambda path, asked: segment(asked)) as two:
        for status[0] in (500, 502, 503, 504):
            one.requests.clear()
            two.requests.clear()
            source = HttpSource(base_urls=[one.url, two.url], installation="one")
            refused(SegmentUnavailable, source.fetch, "t", match="does not use what that answer")
            assert (len(one.posts), len(two.posts)) == (1, 0)
            assert source.fetch("t").start == 1
            assert (len(one.posts), len(two.posts)) == (1, 1)
            source.close()


def test_none_that_answers_is_one_error_that_names_all() -> None:
    """Every address is in the message, with what became of it; the cause is chained."""
    urls = [closed_url(), closed_url()]
    source = HttpSource(base_urls=urls, installation="one")
    with pytest.raises(SegmentUnavailable) as caught:
        source.fetch("t")
    assert all(url in str(caught.value) for url in urls)
    assert caught.value.__cause__ is not None


# --- the secret, and other options -----------------------------------------------------------


def test_the_token_is_read_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard 26: what a function returns now, in a header alone."""
    path = tmp_path / "token"
    with scripted(lambda path, asked: segment(asked)) as server:
        for token in (path.read_text, lambda: os.environ["IDGEN_TEST_TOKEN"]):
            source = HttpSource(base_urls=server.url, token=token)
            for secret in ("first", "second"):
                path.write_text(f"{secret}\n")
                monkeypatch.setenv("IDGEN_TEST_TOKEN", secret)
                source.fetch("t")
            source.close()
            sent = [headers["Authorization"] for _, _, _, headers in server.requests[-2:]]
            assert sent == ["Bearer first", "Bearer second"]
        assert not any("first" in path or "second" in path for _, path, _, _ in server.requests)


def test_a_token_that_is_missing_is_named(tmp_path: Path) -> None:
    """The file or variable, but never what is in it."""
    for token, words in (
        ((tmp_path / "none").read_text, "none"),
        (lambda: os.environ["IDGEN_NO_SUCH_VARIABLE"], "^IDGEN_NO_SUCH_VARIABLE is not set"),
        (lambda: "a\nb", "characters"),
        (lambda: None, "'token' returned is not an access token"),
    ):
        source = HttpSource(base_urls="http://127.0.0.1:1/", token=token)  # type: ignore[arg-type]
        refused(ConfigurationError, source.fetch, "t", match=words)


NO_OPTIONS: list[dict[str, Any]] = [
    {"base_urls": ""},
    {"base_urls": []},
    {"base_urls": "ids.example.com"},
    {"base_urls": "ftp://ids.example.com/"},
    {"base_urls": "http://user:secret@ids.example.com/"},
    {"base_urls": "http://ids.example.com/?token=secret"},
    {"base_urls": "http://[::1"},
    {"base_urls": "http://ids.example.com:99999/"},
    {"base_urls": "http://user:secret@ids.example.com:99999/"},
    {"base_urls": "ftp://user:secret@ids.example.com/"},
    {"base_urls": "http://user:the secret@ids.example.com/"},
    {"base_urls": "ids.example.com/idgen?token=secret"},
    {"base_urls": {"http://user:secret@ids.example.com/"}},
    {"base_urls": ["http://a/", "http://a"]},
    {"base_urls": 7},
    {"token": ""},
    {"token": "a b"},
    {"token": 5},
    {"timeout": 0},
    {"timeout": True},
    {"timeout": 1e9},
    {"connect_timeout": "1"},
    {"trust_env": 1},
    {"installation": 5},
    {"installation": ""},
    {"installation": ["one", 2]},
    {"base_urls": "https://a/", "verify": "/no/such/file"},
    {"base_urls": "https://a/", "verify": 3},
]


def test_options_that_cannot_work_are_refused() -> None:
    """When it is made, with the option named, and without any secret in the message."""
    for options in NO_OPTIONS:
        options = {"base_urls": "http://a/", **options}
        assert "secret" not in str(refused(ConfigurationError, HttpSource, **options))
        refused(ConfigurationError, HttpLeases, NAMESPACE, **options)


def test_proxies_of_the_environment_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless ``trust_env`` says so: ids should not go through who knows what."""
    monkeypatch.setenv("HTTP_PROXY", closed_url())
    monkeypatch.setenv("http_proxy", closed_url())
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with scripted(lambda path, asked: segment(asked)) as server:
        source = HttpSource(base_urls=server.url)
        assert source.fetch("t").start == 1
        source.close()
        through = HttpSource(base_urls=server.url, trust_env=True)
        with pytest.raises(SegmentUnavailable, match="can't be reached"):
            through.fetch("t")
        through.close()


def test_what_another_thread_closes_is_a_lost_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an error of the library below; the next call opens anew."""
    with scripted(lambda _path, asked: segment(asked)) as server:
        source = HttpSource(base_urls=server.url)
        send = Wire.send

        def closing(self: Wire, *args: Any, **options: Any) -> Any:
            monkeypatch.setattr(Wire, "send", send)
            source.close()  # as a thread would at this moment
            return self.send(*args, **options)

        monkeypatch.setattr(Wire, "send", closing)
        with pytest.raises(SegmentUnavailable, match="was lost"):
            source.fetch("t")
        assert source.fetch("t").start == 1
        source.close()


# --- what a generator is like ------------------------------------------------------------

TERMS: dict[str, Any] = {
    "namespace": "default",
    "layout": {
        "name": "standard",
        "fields": [["time", 41], ["worker", 10], ["sequence", 12]],
        "worker_parts": [["datacenter", 5], ["machine", 5]],
        "tick_us": 1000,
        "epoch_us": "1735689600000000",
    },
    "workers": [0, 1024],
    "window_ticks": "180000",
    "skew_ticks": "1000",
    "ahead_ticks": "0",
}
"""How a service describes a generator."""


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each number and text in ``value``."""
    if not isinstance(value, dict | list):
        return [path]
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return [found for key, part in parts for found in places_in(part, (*path, key))]


@pytest.mark.parametrize("place", places_in(TERMS), ids=lambda place: "-".join(map(str, place)))
def test_a_description_of_a_generator(place: tuple[Any, ...]) -> None:
    """Hazard 118: whatever stands in the place of a number or text: an error that says so."""
    for value in ODD:
        body = deepcopy(TERMS)
        part = body
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value
        try:
            layout, space = described("default", body)
        except RegistryUnavailable:
            continue
        told = body["layout"]
        assert (str(layout.epoch_us), space.tick_us) == (str(told["epoch_us"]), told["tick_us"])
