"""One request over HTTP: sent once, and answered before a deadline or lost.

When a request fails, it matters whether the service may have carried it out. So there are three
failures: certainly not sent, refused by the service, and all others.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator

try:
    import httpcore
    import httpx
except ImportError as missing:
    raise ConfigurationError(
        f"Ids over HTTP need 'httpx', which is not installed ({missing}): pip install "
        '"django-idgen[client]".'
    ) from missing


MOST_BYTES = 65_536
"""Of an answer; one of the service has a few hundred."""
KEEPALIVE = 1.0
"""Seconds to keep an idle connection: less than servers do (gunicorn's 2 s are the shortest), so
that a request rarely uses one that the server is just closing."""
MOST_KEPT = 4
REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 409, 413, 415, 429})
"""Statuses with which a service has granted nothing; so does 503 with a ``code`` in the body."""


class NotSent(Exception):
    """The service certainly never saw the request."""


class Lost(Exception):
    """The service may have carried out the request; its grant is given up."""


class Refused(Exception):
    """The service has granted nothing, and said so."""

    def __init__(
        self, status: int, code: str, detail: str, body: Mapping[str, Any] | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.body: Mapping[str, Any] = body or {}
        super().__init__(f"{status} {code}: {detail}" if code else detail)

    @property
    def is_final(self) -> bool:
        """Whether waiting does not help: a wrong token, a missing right, or no such thing.

        Without a code the answer is not the service's but that of a proxy before it.
        """
        return self.status in (401, 403, 404) and bool(self.code)


@dataclass(frozen=True, slots=True)
class Answer:
    """The service's answer, and when it came. Frozen."""

    body: Mapping[str, Any] = field(repr=False)
    sent_ns: int
    received_ns: int


class Wire:
    """The connections of one process to the services. Thread-safe.

    HTTP/1.1. Repeats no request, follows no redirect. ``trust_env``: use the environment's
    proxies. Opens nothing until the first call.
    """

    def __init__(self, *, verify: bool | ssl.SSLContext, trust_env: bool) -> None:
        self._pid = os.getpid()
        self._deadline = threading.local()
        self._client = httpx.Client(
            verify=verify,
            trust_env=trust_env,
            follow_redirects=False,
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=MOST_KEPT,
                keepalive_expiry=KEEPALIVE,
            ),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "django-idgen",
            },
        )
        transports = [self._client._transport, *self._client._mounts.values()]
        for transport in transports:
            pool: Any = getattr(transport, "_pool", None)
            if hasattr(pool, "_network_backend"):
                pool._network_backend = _Backend(pool._network_backend, self._left)

    def send(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        *,
        token: str | None,
        connect_timeout: float,
        deadline: float,
        elapsed_ns: Callable[[], int] = SYSTEM_CLOCK.elapsed_ns,
    ) -> Answer:
        """Send one request. ``deadline``: the moment of the stopwatch at which its answer is lost.

        Raises :class:`NotSent`, :class:`Refused` or :class:`Lost`.
        """
        self._deadline.at = deadline
        left = max(deadline - SYSTEM_CLOCK.stopwatch(), 0.001)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx.Timeout(left, connect=min(connect_timeout, left))
        sent_ns = elapsed_ns()
        with _told_apart(left):
            request = self._client.build_request(
                method, url, json=body, headers=headers, timeout=timeout
            )
            response = self._client.send(request, stream=True, auth=None)
            try:
                content = _content(response)
            finally:
                response.close()
                self._client.cookies.clear()  # there is no session
        return Answer(_checked(response, content), sent_ns, elapsed_ns())

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self._client.close()

    def __del__(self) -> None:
        # A closed generator does not close its registry.
        if getattr(self, "_pid", None) == os.getpid():
            with suppress(Exception):
                self.close()

    def _left(self, timeout: float | None) -> float:
        """Seconds for a step that may take ``timeout``, so that all steps end by the deadline."""
        left: float = getattr(self._deadline, "at", float("inf")) - SYSTEM_CLOCK.stopwatch()
        return left if timeout is None else min(timeout, left)


@contextmanager
def _told_apart(seconds: float) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
        raise NotSent(_words(error)) from error
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise NotSent(_words(error)) from error
    except httpx.TimeoutException as error:
        raise Lost(f"there was no answer within {seconds:.3g} s ({_words(error)})") from error
    except (httpx.HTTPError, RuntimeError, OSError) as error:
        # httpx raises RuntimeError for connections that another thread has closed.
        raise Lost(f"the connection broke before the answer: {_words(error)}") from error


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _content(response: httpx.Response) -> bytes:
    """The raw body. It may come in drops, and must end before the deadline."""
    parts = bytearray()
    for part in response.iter_raw():
        parts += part
        if len(parts) > MOST_BYTES:
            raise Lost(f"the answer has more than {MOST_BYTES} bytes")
    return bytes(parts)


def _checked(response: httpx.Response, content: bytes) -> Mapping[str, Any]:
    status = response.status_code
    body = _parsed(response, content)
    if status == 200:
        if body is None:
            raise Lost(f"the answer is not JSON but {_kind(response)}: is a proxy in between?")
        return body
    if 300 <= status < 400:
        # No idgen service redirects, but this may be any server.
        raise Lost(f"it answered with a redirect ({status}), which is not followed")
    if body is not None and (status in REFUSALS or (status == 503 and "code" in body)):
        raise Refused(status, *_reason(body), body)
    if status in REFUSALS:
        raise Refused(status, "", f"it answered {status} with {_kind(response)}")
    raise Lost(f"it answered {status} with {_kind(response)}")


def _reason(body: Mapping[str, Any]) -> tuple[str, str]:
    code, detail = body.get("code"), body.get("detail")
    if isinstance(detail, str):
        return (code if isinstance(code, str) else ""), detail[:1000]
    return "invalid", json.dumps(body)[:1000]  # by field


def _parsed(response: httpx.Response, content: bytes) -> Mapping[str, Any] | None:
    if "json" not in _kind(response) or response.headers.get("content-encoding"):
        return None
    try:
        body = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _kind(response: httpx.Response) -> str:
    kind: str = response.headers.get("content-type", "no content type")
    return kind.partition(";")[0][:80]


class _Backend(httpcore.NetworkBackend):
    """Sockets of which every step ends before the request's deadline.

    httpx' own limits are for a single read, so a server that sends a byte a second would never
    time out.
    """

    def __init__(
        self, backend: httpcore.NetworkBackend, left: Callable[[float | None], float]
    ) -> None:
        self._backend = backend
        self._left = left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        limit = _positive(self._left(timeout), httpcore.ConnectTimeout)
        stream = self._backend.connect_tcp(host, port, limit, local_address, socket_options)
        return _Stream(stream, self._left)

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        limit = _positive(self._left(timeout), httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_unix_socket(path, limit, socket_options), self._left)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    def __init__(
        self, stream: httpcore.NetworkStream, left: Callable[[float | None], float]
    ) -> None:
        self._stream = stream
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        limit = _positive(self._left(timeout), httpcore.ReadTimeout)
        return self._stream.read(max_bytes, limit)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _positive(self._left(timeout), httpcore.WriteTimeout))

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        limit = _positive(self._left(timeout), httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, limit), self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


def _positive(left: float, late: type[Exception]) -> float:
    if left <= 0:
        raise late("the deadline of the request is past")
    return left
