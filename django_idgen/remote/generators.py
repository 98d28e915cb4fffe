"""The generators of a service, by alias, as its clients make them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from ..core.errors import ConfigurationError, GeneratorClosed, RegistryUnavailable
from ..core.generator import Emit, PreforkGenerator, is_prefork
from ..core.layout import BitLayout
from ..core.lease import Namespace
from ..core.loader import process_lock
from ..core.registry import Registry
from ..core.snowflake import SnowflakeGenerator
from .link import HttpLink, Refused, leases_path, number_of, way_out, word_of

__all__ = ["PreforkMap", "RemoteGenerators", "described"]


class PreforkMap:
    """``map[name]`` in a process that uWSGI is about to fork: see :mod:`.prefork`."""

    def __init__(self, make: Callable[[str], Any], find: Callable[[str], Any]) -> None:
        self._make = make
        self._find = find

    def __getitem__(self, name: str) -> PreforkGenerator:
        return PreforkGenerator(partial(self._make, name), partial(self._find, name))


class RemoteGenerators:
    """``generators[alias]``: snowflake generators as the service has them. Thread-safe.

    The layout, epoch, worker ids and window are the service's: they are asked for at the
    first use, and compared by the service whenever it lends. One that was changed since is
    refused with :class:`NamespaceMismatch`. ``registry`` makes the registry of a namespace that
    the service lends.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        options: Mapping[str, Any],
        *,
        registry: Callable[..., Registry],
        holder: str,
        on_event: Emit,
    ) -> None:
        self._options = {"base_urls": base_urls, **options}
        self._link = HttpLink(**self._options)
        self._registry = registry
        self._holder = holder
        self._on_event = on_event
        self._closed = False
        self._made: dict[str, SnowflakeGenerator] = {}
        self._start_over()

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()  # last: a thread that reads it finds the rest done

    @property
    def base_urls(self) -> tuple[str, ...]:
        return self._link.base_urls

    def __getitem__(self, alias: str) -> SnowflakeGenerator:
        """Raises :class:`RegistryUnavailable` if the service can't be asked.

        And :class:`ConfigurationError` for an alias that can't be one, or
        :class:`GeneratorClosed`.
        """
        found = self._made.get(alias)
        return self._make(alias) if found is None else found

    async def afind(self, alias: str) -> SnowflakeGenerator:
        """As ``generators[alias]``, for coroutines: asking the service holds up no loop."""
        found = self._made.get(alias)
        if found is not None:
            return found
        return await asyncio.to_thread(self._make, alias)

    def _make(self, alias: str) -> SnowflakeGenerator:
        if is_prefork():
            held_once = PreforkMap(self._built_apart, self.__getitem__)
            return cast(SnowflakeGenerator, held_once[alias])
        self._check_process()
        with self._lock:
            if self._closed:
                raise GeneratorClosed(f"The client was closed: no id of {alias!r} is given out.")
            if alias not in self._made:
                self._made[alias] = self._built(alias)
            return self._made[alias]

    def _built_apart(self, alias: str) -> SnowflakeGenerator:
        return self._built(alias, background=False)

    def _built(self, alias: str, *, background: bool = True) -> SnowflakeGenerator:
        try:
            answer = self._link.ask(leases_path(alias), unavailable=RegistryUnavailable)
        except Refused as error:
            raise RegistryUnavailable(
                f"The service does not tell of its generator {alias!r}: {error}{way_out(error)}"
            ) from error
        layout, namespace = described(alias, answer.body)
        return SnowflakeGenerator(
            layout,
            self._registry(namespace, generator=alias, **self._options),
            max_ahead=namespace.ahead_ticks * layout.tick_us / 1e6,
            skew_limit=namespace.skew_ticks * layout.tick_us / 1e6,
            holder=self._holder,
            background=background,
            emit=self._on_event,
        )

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            with process_lock():
                if self._pid != os.getpid():
                    self.forget()

    def close(self) -> None:
        """Give the worker ids back. May be called twice."""
        self._check_process()
        with self._lock:
            self._closed = True
            made, self._made = self._made, {}
        for generator in made.values():
            generator.close()
            generator.keeper.registry.close()
        self._link.close()

    def forget(self) -> None:
        """After a fork: each generator drops its parent's lease."""
        self._link.abandon()
        for generator in self._made.values():
            generator.forget()
        self._start_over()


def described(alias: str, body: Mapping[str, Any]) -> tuple[BitLayout, Namespace]:
    """The layout and the namespace that a service tells of its generator ``alias``.

    Raises :class:`RegistryUnavailable` if they can't be right.
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
    except (ConfigurationError, KeyError, TypeError, ValueError) as error:
        raise RegistryUnavailable(
            f"The service tells of its generator {alias!r} what can't be right: {error}. See "
            f"that it runs the same version of django_idgen."
        ) from error
    return layout, namespace


def _layout(words: Mapping[str, Any]) -> BitLayout:
    epoch_us = int(words["epoch_us"])
    return BitLayout(
        tuple((name, bits) for name, bits in words["fields"]),
        tick_us=words["tick_us"],
        epoch_us=epoch_us,
        name=word_of(words, "name"),
        worker_parts=tuple((name, bits) for name, bits in words["worker_parts"]),
    )
