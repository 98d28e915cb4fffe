"""Anything at all as settings, layouts, texts, files, replies, answers and requests (I6).

Nothing comes out but a sound result or one of the package's own errors. The tests share ten
minutes, or as many seconds as ``IDGEN_FUZZ`` says.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.test import Client, override_settings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from django_idgen.core.encoding import ScrambledForm, TextForm
from django_idgen.core.errors import ConfigurationError, IdgenError
from django_idgen.core.layout import BitLayout, parse_layout
from django_idgen.core.segment import MAX_ID, Demand
from django_idgen.leases.checkpointed import CheckpointedLeases
from django_idgen.leases.memory import MemoryLeases, MemoryMarks
from django_idgen.leases.redis.registry import RedisLeases
from django_idgen.settings.config import read_settings
from django_idgen.sources.file import FileSource
from django_idgen.sources.http import HttpSource
from django_idgen.testing.contracts import NAMESPACE, DrivenTime
from tests.remote.scripted import Said, scripted, segment

pytestmark = pytest.mark.long
SHARE = float(os.environ.get("IDGEN_FUZZ", "600")) / 8
"""Seconds of each test."""
FOREVER = settings(
    max_examples=10**6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    database=None,
)

# Many of them are nearly right: what is all wrong is refused at once.
words = st.one_of(
    st.text(max_size=30), st.sampled_from(["", "default", "0", "-1", "1e9", "\0", "é"])
)
numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64, 1e308, True]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words, st.binary(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(words, numbers), inner, max_size=4),
    ),
    max_leaves=10,
)


def in_words(error: Exception) -> None:
    if len(str(error)) < 5:
        raise AssertionError(f"{error!r} says nothing")


def fuzz(strategy: st.SearchStrategy[Any], job: Callable[[Any], object]) -> int:
    """Give ``job`` values until the time is up. Returns how many."""
    begun, count = 0.0, 0

    class TimeIsUp(BaseException):
        pass

    @FOREVER
    @given(strategy)
    def once(value: Any) -> None:
        nonlocal begun, count
        begun = begun or time.monotonic()
        if time.monotonic() > begun + SHARE:
            raise TimeIsUp
        count += 1
        job(value)

    with pytest.raises(TimeIsUp):
        once()
    return count


def nearly(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A dictionary with some of ``keys``, perhaps a strange one more, or no dictionary."""
    some = st.fixed_dictionaries({}, optional=keys)
    more = st.builds(
        lambda known, other: {**known, **other}, some, st.dictionaries(words, values, max_size=1)
    )
    return st.one_of(some, some, more, values)


BACKENDS = [
    "django_idgen.leases.database.DatabaseLeases",
    "django_idgen.leases.static.StaticLeases",
    "django_idgen.core.buffered.BufferedGenerator",
    "django_idgen.core.tag_generator.SerialGenerator",
    "django_idgen.sources.database.DatabaseSource",
    "django_idgen.sources.pool.PoolSource",
    "django_idgen.nowhere.Nothing",
    "os.path",
]
options = nearly(
    window=values, workers=values, timeout=values, max_ahead=values, skew_limit=values,
    idle_after=values, database=values, alias=values, default_step=values, directory=values,
)  # fmt: skip
backend = nearly(BACKEND=st.one_of(st.sampled_from(BACKENDS), values), OPTIONS=options)
layouts = st.one_of(
    st.sampled_from(["standard", "js_safe", "uid", "sonyflake", "pear_flower"]),
    nearly(
        time=numbers, worker=st.one_of(numbers, values), sequence=numbers, tick=values,
        batch=values,
    ),
    st.lists(st.tuples(st.sampled_from(["time", "worker", "sequence", "batch", "x"]), numbers)),
    values,
)  # fmt: skip
epochs = st.one_of(st.none(), words, numbers, st.datetimes().map(str), values)
generators = nearly(
    BACKEND=st.one_of(st.sampled_from(BACKENDS), values), NAMESPACE=values, LAYOUT=layouts,
    EPOCH=epochs, LEASES=backend, OPTIONS=options, SOURCE=backend,
)  # fmt: skip
idgen = nearly(
    GENERATORS=st.one_of(st.dictionaries(words, generators, max_size=2), values),
    SEGMENTS=nearly(SOURCE=backend, OPTIONS=options),
    REST=nearly(make_tags=values, max_leases=values, token_max_age=values, max_segment=values),
    METRICS=nearly(max_age=values),
    SCRAMBLE_KEYS=st.one_of(st.dictionaries(words, values, max_size=3), values),
)


def test_settings() -> None:
    """Settings are taken, or refused in words."""

    def read(value: object) -> None:
        with override_settings(IDGEN=value):
            try:
                read_settings()
            except ConfigurationError as error:
                in_words(error)

    assert fuzz(idgen, read) > 100


def test_layouts() -> None:
    """A layout that is taken packs and unpacks; any other is refused in words."""

    def parse(given: tuple[object, object]) -> None:
        spec, epoch = given
        try:
            layout = parse_layout(spec, epoch=epoch)
        except ConfigurationError as error:
            in_words(error)
            return
        assert isinstance(layout, BitLayout)
        worker = layout.workers[-1]
        value = layout.pack(1, worker, 1 if layout.sequences > 1 else 0)
        assert layout.unpack(value).worker == worker

    assert fuzz(st.tuples(layouts, epochs), parse) > 100


def test_texts_of_ids() -> None:
    """A text is one id or none, in every form, and an id that was read has that text."""
    forms = [
        TextForm(),
        TextForm("base62"),
        TextForm("crockford", prefix="ord_"),
        ScrambledForm("base36", name="orders", keys=lambda: {"1": b"k" * 32}),
    ]
    digits = st.text(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_ ", max_size=20
    )
    texts = st.one_of(digits, digits.map("ord_".__add__), words, values)

    def read(value: Any) -> None:
        for form in forms:
            try:
                found = form.read(value)
            except IdgenError as error:
                in_words(error)
            else:
                assert 1 <= found <= MAX_ID
                assert form.read(form.format(found)) == found

    assert fuzz(texts, read) > 100


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as name:
        yield Path(name)


damage = st.tuples(
    st.sampled_from([0, 1]), st.one_of(st.binary(max_size=60), st.none()), st.integers(0, 60)
)


def spoil(path: Path, content: bytes | None, place: int) -> None:
    """Put ``content`` into the file at ``place``, or cut the file there."""
    known = path.read_bytes()
    path.write_bytes(
        known[:place]
        if content is None
        else known[:place] + content + known[place + len(content) :]
    )


def test_files_of_serial_ids(directory: Path) -> None:
    """A damaged file is refused, or the tag goes on above all that it gave."""
    source = FileSource(directory=directory, default_step=10)
    given = [source.fetch("t")]

    def damaged(value: tuple[int, bytes | None, int]) -> None:
        number, content, place = value
        files = sorted(directory.glob("*"))
        before = [path.read_bytes() for path in files]
        spoil(files[number], content, place)
        try:
            found = source.fetch("t", floor=given[-1].stop, demand=Demand(granted=given[-1].stop))
        except IdgenError as error:
            in_words(error)
            for path, known in zip(files, before, strict=True):
                path.write_bytes(known)
        else:
            assert found.start >= given[-1].stop
            given.append(found)
            if found.stop > 2**62:
                for path, known in zip(files, before, strict=True):
                    path.write_bytes(known)
                given.pop()

    assert fuzz(damage, damaged) > 50


def test_checkpoints(directory: Path) -> None:
    """A damaged checkpoint is not resumed: its holder gets another window, or an error."""
    clock, marks = DrivenTime(), MemoryMarks()

    def lease() -> Any:
        inner = MemoryLeases(NAMESPACE, marks=marks, read_now_us=clock.read)
        registry = CheckpointedLeases(NAMESPACE, registry=inner, directory=directory)
        try:
            return registry.acquire(holder="a").lease
        finally:
            registry.close()

    ends: dict[int, int] = {}

    def damaged(value: tuple[int, bytes | None, int]) -> None:
        number, content, place = value
        clock.pass_ticks(2 * NAMESPACE.window_ticks)
        files = sorted(directory.glob("*"))
        if files:
            spoil(files[number % len(files)], content, place)
        try:
            found = lease()
        except IdgenError as error:
            in_words(error)
            for path in files:
                path.unlink(missing_ok=True)
        else:
            assert found.start >= ends.get(found.worker, 0)
            ends[found.worker] = found.until

    assert fuzz(damage, damaged) > 20


replies = st.one_of(
    st.lists(st.one_of(words, st.integers().map(str), st.just("ok")), max_size=12),
    st.lists(st.integers(0, 2**53).map(str), min_size=4, max_size=12).map(
        lambda rest: ["ok", *rest]
    ),
    st.sampled_from(
        [
            ["open"],
            ["raise"],
            ["lost"],
            ["none"],
            ["wait", "1"],
            ["mismatch"],
            ["protocol", "9"],
            [],
        ]
    ),
)


class Answering:
    """A client of Redis whose script answers anything, and nothing sensible after that."""

    def __init__(self) -> None:
        self.answers: list[list[str]] = []

    def execute_command(self, *_words: object) -> list[str]:
        return self.answers.pop() if self.answers else ["?"]

    @property
    def connection_pool(self) -> Answering:
        return self

    def disconnect(self) -> None:
        """Nothing to close."""


def test_replies_of_redis() -> None:
    """A lease or a segment is only taken from a reply that can be one."""
    client = Answering()
    registry = RedisLeases(NAMESPACE, timeout=1)
    registry._own._made = os.getpid(), client  # type: ignore[assignment]

    def answered(value: list[str]) -> None:
        for call in (
            lambda: registry.acquire(holder="a"),
            lambda: registry.inspect(),
            lambda: registry.renew_seen(idle_after=10),
        ):
            client.answers = [value]
            try:
                call()
            except IdgenError as error:
                in_words(error)

    assert fuzz(replies, answered) > 20


bodies = st.one_of(
    st.binary(max_size=200),
    values.map(lambda value: json.dumps(value, default=str, skipkeys=True).encode()),
    st.dictionaries(
        st.sampled_from(["tag", "start", "stop", "step", "delta", "installation", "nonce", "code"]),
        st.one_of(st.none(), numbers.filter(lambda n: n == n), words),
    ).map(lambda found: json.dumps(found, default=str).encode()),
)
answers = st.tuples(
    st.sampled_from([200, 200, 200, 201, 204, 301, 400, 401, 404, 409, 429, 500, 503]),
    st.sampled_from(["application/json", "text/html", "application/json; charset=utf-16", ""]),
    bodies,
)


def test_answers_over_http() -> None:
    """Whatever a service answers: a segment that was asked for, or an error."""
    said: list[Said] = [(200, {}, b"")]

    def script(_path: str, asked: dict[str, Any]) -> Said:
        status, headers, body = said[0]
        if not body.startswith(b"{"):
            return said[0]
        known = json.loads(segment(asked)[2])
        try:
            known.update(json.loads(body))
        except ValueError:
            return said[0]
        return status, headers, json.dumps(known).encode()

    with scripted(script) as server:

        def answered(value: tuple[int, str, bytes]) -> None:
            status, kind, body = value
            said[0] = status, {"Content-Type": kind}, body
            source = HttpSource(base_urls=server.url, token="t")
            try:
                found = source.fetch("t", floor=7)
            except IdgenError as error:
                in_words(error)
            else:
                assert found.start >= 7
                assert found.stop <= MAX_ID + 1
            finally:
                source.close()

        assert fuzz(answers, answered) > 20


NAMES = "tags/orders/ids generators/default/ids tags tags/orders segments leases/default decode/1"
paths = st.one_of(st.sampled_from(NAMES.split()), st.text(max_size=30)).map("/idgen/".__add__)
requests = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "X"]),
    paths,
    st.dictionaries(st.sampled_from(["count", "format", "step", "tag", "page"]), words, max_size=3),
    bodies,
    st.sampled_from(["application/json", "text/plain", "multipart/form-data; boundary=x", "x/y"]),
    # Servers read headers as Latin-1.
    st.one_of(st.none(), st.text(st.characters(codec="latin-1", categories=["L", "N", "P", "S"]))),
)


@pytest.mark.django_db
def test_requests() -> None:
    """Whatever a client sends: an answer of the API, and no error of the server."""
    client = Client(raise_request_exception=True)

    def asked(value: Any) -> None:
        method, path, query, body, kind, token = value
        given = {} if token is None else {"HTTP_AUTHORIZATION": f"Bearer {token}"}
        answer = client.generic(method, path, body, kind, query_params=query, **given)
        assert answer.status_code < 500, (answer.status_code, answer.content[:200])

    with override_settings(ROOT_URLCONF="tests.remote.urls"):
        assert fuzz(requests, asked) > 20
