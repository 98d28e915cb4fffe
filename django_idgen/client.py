"""Ids of a service, given out by this process without a database or Django.

    from django_idgen.client import Client

    with Client("https://ids.example.com/idgen/", token=read_token) as client:
        client.next_id()                        # of the service's generators["default"]
        client.generators["orders"].next_ids(1000)
        client.segments["tickets"].next_id()

The service (a Django project with ``django_idgen.rest.urls``) lends whole segments and worker ids.
The client asks it a few times an hour, however many ids it gives out.
``pip install "django-idgen[client]"``.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack
from weakref import WeakSet

from .core.errors import ConfigurationError, GeneratorClosed, RegistryUnavailable, sentence
from .core.events import Emit, ignore
from .core.layout import BitLayout, IdParts
from .core.lease import Namespace, process_label
from .core.loader import PerProcess
from .core.segment_generator import SegmentAllocator, Segments
from .core.snowflake import SnowflakeGenerator
from .leases.http import HttpLeases
from .process import exits
from .remote.link import (
    HttpLink,
    LinkOptions,
    Refused,
    leases_path,
    number_of,
    shows_link_options,
    way_out,
    word_of,
)
from .sources.http import HttpSource

__all__ = ["Client"]

logger = logging.getLogger("django_idgen")

DEFAULT_ALIAS = "default"
WAIT = 5.0
"""Seconds that a caller waits for a segment: long enough to try another address."""


@shows_link_options
class Client:
    """The generators and tags of the services at ``base_urls``. Safe to share between threads.

    ``base_urls``: the URL of the service's API, or a list of URLs of services in front of the same
    database, which needs ``installation``. ``token``: an access token, or a function that returns
    it, called for each request. The token must name the tags, and in ``leases`` the generators.
    The other arguments (``timeout``, ``connect_timeout``, ``verify``, ``trust_env``) are in the
    documentation of the client.

    ``wait``: seconds that a caller waits for a segment if none is left. ``holder``: the label of
    this process in the service's list of leases, by default ``host:pid name``. ``on_event``
    receives the events of the generators (see :mod:`.signals` for the names). If it raises, that
    is logged.

    Close it, or use it as a context manager, to give worker ids back. The end of the process
    gives them back, too. The child of a fork starts without them.

    Making a client sends no request. Raises :class:`ConfigurationError` for wrong arguments.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        *,
        wait: float = WAIT,
        holder: str | None = None,
        on_event: Emit = ignore,
        **link: Unpack[LinkOptions],
    ) -> None:
        self._on_event = on_event
        # A bound method: who keeps a generator so keeps its client, which has to hear of each
        # fork and of the end of the process.
        self._allocator = _allocator(base_urls, link, wait, self._tell)
        self.generators = RemoteGenerators(
            base_urls,
            link,
            holder=process_label() if holder is None else holder,
            on_event=self._tell,
        )
        _clients.add(self)
        _watch_once()

    @property
    def segments(self) -> Segments:
        """``segments[tag]``: the generator of a tag of the service.

        Raises :class:`InvalidTag`.
        """
        return self._allocator.segments

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
        """The parts of an id of ``generators[alias]``, such as its time and worker id.

        ``value`` is an id, or its decimal text. Raises :class:`InvalidId`.
        """
        whole = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20
        return self.generators[alias].decode(int(value) if whole else value)  # type: ignore[arg-type]

    def close(self) -> None:
        """Stop giving out ids, and give the worker ids back. Idempotent. Never raises."""
        try:
            self.generators.close()
        finally:
            self._allocator.close()
        _clients.discard(self)  # last: a fork meanwhile must find it

    def forget(self) -> None:
        """Drop what the child of a fork inherited. Called automatically."""
        exits.call_all([self.generators.forget, self._allocator.forget])

    def _tell(self, name: str, /, **values: object) -> None:
        try:
            self._on_event(name, **values)
        except Exception:
            logger.exception("The 'on_event' %r of a client failed at %s.", self._on_event, name)

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
    base_urls: str | Sequence[str], link: LinkOptions, wait: float, on_event: Emit
) -> SegmentAllocator:
    source = HttpSource(base_urls=base_urls, **link)
    return SegmentAllocator(source, source.loader, timeout=wait, on_event=on_event)


# --- generators ------------------------------------------------------------------------


class RemoteGenerators(PerProcess):
    """``generators[alias]``: snowflake generators as the service has them. Thread-safe.

    The service says which layout, epoch, worker ids and window they have; the first use asks it.
    The service compares them whenever it lends, and raises :class:`NamespaceMismatch` if they
    have changed.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        link: LinkOptions,
        *,
        holder: str,
        on_event: Emit,
    ) -> None:
        self._options = link
        self._link = HttpLink(base_urls, **link)
        self._holder = holder
        self._on_event = on_event
        self._closed = False
        self._made: dict[str, SnowflakeGenerator] = {}
        self._start_over()

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @property
    def base_urls(self) -> tuple[str, ...]:
        return self._link.base_urls

    def __getitem__(self, alias: str) -> SnowflakeGenerator:
        """The generator of ``alias``; the first use asks the service.

        Raises :class:`RegistryUnavailable`, :class:`ConfigurationError` for an impossible alias,
        or :class:`GeneratorClosed`.
        """
        found = self._made.get(alias)
        return self._make(alias) if found is None else found

    async def afind(self, alias: str) -> SnowflakeGenerator:
        """As ``generators[alias]``, for coroutines: never blocks the event loop."""
        found = self._made.get(alias)
        if found is not None:
            return found
        return await asyncio.to_thread(self._make, alias)

    def _make(self, alias: str) -> SnowflakeGenerator:
        self.check_process()
        with self._lock:
            if self._closed:
                raise GeneratorClosed(
                    f"The client is closed, and gives out no more ids of {alias!r}. Make a new one."
                )
            if alias not in self._made:
                self._made[alias] = self._built(alias)
            return self._made[alias]

    def _built(self, alias: str) -> SnowflakeGenerator:
        try:
            answer = self._link.ask(
                leases_path(alias), of=f"generator {alias!r}", unavailable=RegistryUnavailable
            )
        except Refused as error:
            raise RegistryUnavailable(
                f"The service does not describe its generator {alias!r}: {error}{way_out(error)}"
            ) from error
        layout, namespace = described(alias, answer.body)
        return SnowflakeGenerator(
            layout,
            HttpLeases(namespace, base_urls=self.base_urls, generator=alias, **self._options),
            max_ahead=namespace.ahead_ticks * layout.tick_us / 1e6,
            skew_limit=namespace.skew_ticks * layout.tick_us / 1e6,
            holder=self._holder,
            emit=self._on_event,
        )

    def close(self) -> None:
        """Give the worker ids back. May be called twice."""
        self.check_process()
        with self._lock:
            self._closed = True
        for alias, generator in list(self._made.items()):
            generator.close()
            generator.keeper.registry.close()
            self._made.pop(alias, None)  # last: a fork meanwhile must find it
        self._link.close()

    def forget(self) -> None:
        """After a fork: each generator drops its parent's lease."""
        self._link.abandon()
        exits.call_all(generator.forget for generator in self._made.values())
        self._start_over()


def described(alias: str, body: Mapping[str, Any]) -> tuple[BitLayout, Namespace]:
    """The layout and the namespace in a service's description of its generator ``alias``.

    Raises :class:`RegistryUnavailable` if they are impossible.
    """
    try:
        layout = _layout(body["layout"])
        first, end = body["workers"]
        if not all(type(number) is int for number in (first, end)):
            raise ValueError(f"'workers' is {body['workers']!r:.80}")
        namespace = Namespace(
            name=word_of(body, "namespace"),
            epoch_us=layout.epoch_us,
            tick_us=layout.tick_us,
            max_ticks=layout.max_ticks,
            workers=range(first, end),
            window_ticks=number_of(body, "window_ticks", least=1),
            skew_ticks=number_of(body, "skew_ticks"),
            ahead_ticks=number_of(body, "ahead_ticks"),
            fingerprint={**layout.fingerprint(), "registry": "http", "workers": [first, end]},
        )
    except (ConfigurationError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise RegistryUnavailable(
            f"The service's description of generator {alias!r} is not valid: "
            f"{sentence(error)} Check that the service runs the same version of django_idgen."
        ) from error
    return layout, namespace


def _layout(words: Mapping[str, Any]) -> BitLayout:
    return BitLayout(
        tuple((name, bits) for name, bits in words["fields"]),
        tick_us=number_of(words, "tick_us", least=1),
        epoch_us=number_of(words, "epoch_us"),
        name=word_of(words, "name"),
        worker_parts=tuple((name, bits) for name, bits in words["worker_parts"]),
    )


# --- process hooks ---------------------------------------------------------------------

_clients: WeakSet[Client] = WeakSet()
_watched: list[bool] = []


def _watch_once() -> None:
    if not _watched:
        _watched.append(True)
        atexit.register(_close_all)
        exits.on_fork(_forget_all)
        exits.on_multiprocessing_exit(_close_all)


def _close_all() -> None:
    for client in list(_clients):
        client.close()


def _forget_all() -> None:
    exits.call_all(client.forget for client in list(_clients))
