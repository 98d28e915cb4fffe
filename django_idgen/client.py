"""Ids without a database, and without Django: from a service, given out here.

    from django_idgen.client import Client

    with Client("https://ids.example.com/idgen/", token_env="IDGEN_TOKEN") as client:
        client.next_id()                        # of the service's generators["default"]
        client.generators["orders"].next_ids(1000)
        client.segments["invoices"].next_id()

The service (a Django project with ``django_idgen.rest.urls``) lends whole segments and
worker ids; this process asks it a few times an hour, however many ids it takes.
``pip install "django-idgen[client]"``.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, cast
from weakref import WeakSet

from .core.generator import Emit, ignore, is_prefork
from .core.layout import IdParts
from .core.lease import process_label
from .core.segment_allocator import SegmentAllocator, Segments
from .core.segment_generator import SegmentGenerator
from .core.snowflake import SnowflakeGenerator
from .leases.http import HttpLeases
from .process import exits
from .remote.generators import PreforkMap, RemoteGenerators
from .remote.link import CONNECT_TIMEOUT, TIMEOUT, Token
from .sources.http import HttpSource

__all__ = ["Client"]

DEFAULT_ALIAS = "default"
WAIT = 5.0
"""Seconds that a caller waits for a segment: long enough to come past a dead address."""


class Client:
    """The generators and tags of the services at ``base_urls``. Safe to share between threads.

    ``base_urls``: where the service's API is mounted, or a list of addresses of services
    in front of one and the same database. ``token`` (an access token, or a function that
    returns one), ``token_env`` (an environment variable) or ``token_file`` (a path): read
    for each request, so that it can be replaced at any time. It must name the tags, and in
    ``leases`` the generators. For ``timeout``, ``connect_timeout`` (seconds), ``verify``,
    ``cert``, ``trust_env`` and ``installation`` see :class:`HttpLink`.

    ``wait``: seconds that a caller waits for a segment, where none is left. ``holder``: a
    label of this process in the service's list of leases, ``host:pid name`` by default.
    ``on_event`` hears what the generators tell (see :mod:`.signals` for the names).

    Close it, or use it as a context manager, so that worker ids are given back; the end of
    the process does so, too. The child of a fork starts afresh.

    Raises :class:`ConfigurationError` for what can't work. Asks nothing yet.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        *,
        token: Token | None = None,
        token_env: str | None = None,
        token_file: str | None = None,
        timeout: float = TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
        verify: bool | str | ssl.SSLContext = True,
        cert: str | Sequence[str] | None = None,
        trust_env: bool = False,
        installation: str | None = None,
        wait: float = WAIT,
        holder: str | None = None,
        on_event: Emit = ignore,
    ) -> None:
        options: dict[str, Any] = {
            "token": token,
            "token_env": token_env,
            "token_file": token_file,
            "timeout": timeout,
            "connect_timeout": connect_timeout,
            "verify": verify,
            "cert": cert,
            "trust_env": trust_env,
            "installation": installation,
        }
        self._make_allocator = partial(_allocator, base_urls, options, wait, on_event)
        self._allocator = self._make_allocator()
        self.generators = RemoteGenerators(
            base_urls,
            options,
            registry=HttpLeases,
            holder=process_label() if holder is None else holder,
            on_event=on_event,
        )
        _living.add(self)
        _watch_once()

    @property
    def segments(self) -> Segments:
        """``segments[tag]``: the ids of a tag of the service, from whole segments.

        Looking up raises :class:`InvalidTag`; giving ids what
        :class:`SegmentGenerator` says.
        """
        if is_prefork():
            return cast(Segments, PreforkMap(self._single, lambda tag: self.segments[tag]))
        return self._allocator.segments

    def _single(self, tag: str) -> SegmentGenerator:
        """A generator of ``tag`` with an allocator of its own: closing it leaves nothing."""
        return self._make_allocator().generator(tag)

    def snowflake(self, alias: str = DEFAULT_ALIAS) -> SnowflakeGenerator:
        """``generators[alias]``: snowflakes of a generator of the service."""
        return self.generators[alias]

    def next_id(self, alias: str = DEFAULT_ALIAS) -> int:
        """The next id of ``generators[alias]``."""
        return self.generators[alias].next_id()

    def next_ids(self, count: int, alias: str = DEFAULT_ALIAS) -> list[int]:
        """``count`` ids of ``generators[alias]``, rising."""
        return self.generators[alias].next_ids(count)

    async def anext_id(self, alias: str = DEFAULT_ALIAS) -> int:
        """As :meth:`next_id`, for coroutines."""
        return await (await self.generators.afind(alias)).anext_id()

    async def anext_ids(self, count: int, alias: str = DEFAULT_ALIAS) -> list[int]:
        """As :meth:`next_ids`, for coroutines."""
        return await (await self.generators.afind(alias)).anext_ids(count)

    def decode(self, value: int | str, alias: str = DEFAULT_ALIAS) -> IdParts:
        """Take an id of ``generators[alias]`` apart: when it was made, and by whom.

        ``value`` is an id, or its decimal text. Raises :class:`InvalidId`.
        """
        whole = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20
        return self.generators[alias].decode(int(value) if whole else value)  # type: ignore[arg-type]

    def close(self) -> None:
        """Stop giving out ids, and give the worker ids back. May be called twice; never raises."""
        _living.discard(self)
        self.generators.close()
        self._allocator.close()

    def forget(self) -> None:
        """In the child of a fork: nothing of the parent's is used. Called automatically."""
        self.generators.forget()
        self._allocator.forget()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.generators.base_urls)}>"


def _allocator(
    base_urls: str | Sequence[str], options: Mapping[str, Any], wait: float, on_event: Emit
) -> SegmentAllocator:
    source = HttpSource(base_urls=base_urls, **options)
    return SegmentAllocator(source, source.loader, timeout=wait, on_event=on_event)


# --- the process' life ------------------------------------------------------------------

_living: WeakSet[Client] = WeakSet()
_watched: list[bool] = []


def _watch_once() -> None:
    if not _watched:
        _watched.append(True)
        exits.on_exit(_close_all)
        exits.on_fork(_forget_all)
        exits.on_multiprocessing_exit(_close_all)


def _close_all() -> None:
    for client in list(_living):
        client.close()


def _forget_all() -> None:
    for client in list(_living):
        client.forget()
