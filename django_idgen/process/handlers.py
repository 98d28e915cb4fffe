"""The process-wide maps: ``generators`` by alias, ``segments`` by tag.

Process-wide on purpose, unlike Django's connections: a generator is shared by
all threads and tasks of a process, and so is the worker id that it holds. Made
on first use; importing this module reads no settings.

Models need the maps when they are defined, and only the first id needs what fills them: the
readers of the settings, the generators, the adapters. Those come with :mod:`.factory`, which
:func:`wiring` imports; see :func:`import_backends` for when at the latest.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import signals
from ..core.errors import SegmentUnavailable
from ..core.generator import Generator, PreforkGenerator, is_prefork
from ..core.segment import check_tag
from ..db.stores import forget_in_process
from ..settings.config import DEFAULT_ALIAS, SettingsError
from . import lifecycle

if TYPE_CHECKING:
    from ..core.segment_allocator import SegmentAllocator
    from ..settings.config import GeneratorSettings, IdgenSettings

__all__ = [
    "AliasMap",
    "GeneratorMap",
    "SegmentMap",
    "current_settings",
    "generator_settings",
    "generators",
    "next_id",
    "reset",
    "segments",
]

T = TypeVar("T")


class AliasMap(ABC, Generic[T]):
    """What this process has made of each alias of ``IDGEN["GENERATORS"]``, on first use.

    Thread-safe: of many threads at first use, all get the one that was made.
    """

    def __init__(self) -> None:
        self._made: dict[str, T] = {}
        self._lock = threading.Lock()

    def __getitem__(self, alias: str) -> T:
        """Raises what :meth:`build` does for an alias that is not configured."""
        found = self._made.get(alias)
        return self._make(alias) if found is None else found

    def _make(self, alias: str) -> T:
        with self._lock:
            if alias not in self._made:
                self._made[alias] = self.build(alias)
                lifecycle.watch()
            return self._made[alias]

    @abstractmethod
    def build(self, alias: str) -> T:
        """Make what the settings say under ``alias``."""

    @abstractmethod
    def end(self, alias: str, made: T) -> None:
        """Close what has left the map."""

    @abstractmethod
    def drop_inherited(self, made: T) -> None:
        """In the child of a fork: give up the grants that the parent holds."""

    def override(self, alias: str, made: T) -> AbstractContextManager[T]:
        """Use ``made`` under ``alias`` for a block (of a test): nothing is made or closed."""
        return _overridden(self._made, alias, made)

    def close(self) -> None:
        """Close all of them and forget them. May be called twice."""
        with self._lock:  # so that none is made into the map that is being left
            left, self._made = self._made, {}
        for alias, each in left.items():
            self.end(alias, each)

    def forget(self) -> None:
        """After a fork: drop what came from the parent."""
        self._lock = threading.Lock()
        for each in self._made.values():
            self.drop_inherited(each)


@contextmanager
def _overridden(made: dict[str, T], name: str, value: T) -> Iterator[T]:
    before = made.get(name)
    made[name] = value
    try:
        yield value
    finally:
        if before is None:
            del made[name]
        else:
            made[name] = before


class GeneratorMap(AliasMap[Generator]):
    """``generators[alias]``: the generator of an alias of ``IDGEN["GENERATORS"]``.

    Raises :class:`SettingsError` for an alias that is not configured.
    """

    def __iter__(self) -> Iterator[str]:
        found = current_settings()
        return iter([*found.generators, *found.tag_generators])

    def __contains__(self, alias: object) -> bool:
        return alias in list(self)

    def _make(self, alias: str) -> Generator:
        if is_prefork():
            return PreforkGenerator(
                partial(self.build, alias, threads=False), partial(self.__getitem__, alias)
            )
        return super()._make(alias)

    def build(self, alias: str, *, threads: bool = True) -> Generator:
        made: Generator
        if tagged := current_settings().tag_generators.get(alias):
            made = wiring().build_tag_generator(tagged)
        else:
            made = wiring().build_generator(generator_settings(alias), threads=threads)
        return made

    def made(self) -> dict[str, Generator]:
        """The generators that exist in this process, without making any."""
        return dict(self._made)

    def end(self, alias: str, made: Generator) -> None:
        made.close()
        _say_goodbye("generator", alias, made)

    def drop_inherited(self, made: Generator) -> None:
        made.forget()


class SegmentMap(dict[str, Generator]):
    """``segments[tag]``: the generator of a tag of ``LeafAlloc``, made on first use.

    The tag is made, too, unless ``make_tags`` is False and it is no field's: then one that
    is not there raises :class:`TagUnknown`.

    A dictionary, so that the look-up of a known tag is one; it holds the tags that
    were used in this process. Thread-safe. ``segments[tag]`` raises
    :class:`InvalidTag` for what can't be a tag.
    """

    def __init__(self) -> None:
        super().__init__()
        self._allocator: SegmentAllocator | None = None
        self.fields: dict[str, list[Any]] = {}
        """By tag: the project's fields that it fills."""
        self._loaded: dict[str, int] = {}
        """By tag: the highest id of the rows that this process has loaded."""
        self._lock = threading.Lock()

    def __missing__(self, tag: str) -> Generator:
        # At first use only, and not before there are models.
        from .tags import check_made

        if tag not in self.fields and not current_settings().segments.make_tags:
            try:
                check_made(check_tag(tag))
            except SegmentUnavailable:
                # A pool may have its ids all the same. Not kept: the next look-up asks again.
                generator = self.open(tag)
                self.pop(tag, None)
                return generator
        return self.open(tag)

    def of_field(self, field: Any) -> Generator:
        """The generator of a field's tag, which may be a migration's own field."""
        tag: str = field.resolved_tag
        found = self.get(tag)
        return self.open(tag, field) if found is None else found

    def open(self, tag: str, *fields: Any) -> Generator:
        """As ``segments[tag]``, and the tag may be made in any case.

        It begins above the rows of ``fields``, and of all that are known to have this tag.
        """
        from .tags import taken_of_new

        fields = (*fields, *self.fields.get(check_tag(tag), ()))
        if is_prefork():
            taken = taken_of_new(tag, fields) or 0
            return PreforkGenerator(partial(_single, tag, taken), partial(self.open, tag, *fields))
        allocator = self.allocator()
        made = allocator.generator(tag)
        # One that was granted ids is not new.
        known = 0 if made.floor else taken_of_new(tag, fields)
        if top := max(self._loaded.get(tag, 0), known or 0):
            made.go_past(top)
        with self._lock:
            # One that was closed meanwhile says so, but is not kept. Nor is one of which nobody
            # knows yet where it is to begin: that is asked again.
            keep = allocator is self._allocator and known is not None
            return self.setdefault(tag, made) if keep else made

    def forget_loaded(self) -> None:
        """Take it that this process has loaded no rows."""
        self._loaded.clear()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tags>"

    def allocator(self) -> SegmentAllocator:
        """What makes the tags' generators. Raises :class:`SettingsError`."""
        found = self._allocator
        if found is None:
            with self._lock:
                found = self._allocator
                if found is None:
                    found = wiring().build_allocator(current_settings().segments)
                    found.on_drop = self._drop
                    self._allocator = found
                    lifecycle.watch()
        return found

    def go_past(self, tag: str, top: int) -> None:
        """Give out no id of ``tag`` up to ``top`` in this process: rows were loaded that have them.

        Raises :class:`SettingsError` and :class:`InvalidTag`.
        """
        with self._lock:
            self._loaded[tag] = max(top, self._loaded.get(tag, 0))
        self.allocator().generator(tag).go_past(top)

    def _drop(self, tag: str, generator: Generator) -> None:
        """The allocator dropped a tag that was not used for a while."""
        with self._lock:
            if self.get(tag) is generator:
                del self[tag]
        _say_goodbye("tag", tag, generator)

    def made(self) -> dict[str, Generator]:
        """The tags that were used in this process, and not left alone for long since."""
        allocator = self._allocator
        # One that was dropped may have come back by somebody who held on to it.
        known: dict[str, Any] = {} if allocator is None else dict(allocator.segments)
        return {**known, **dict(self)}

    def override(self, tag: str, generator: Generator) -> AbstractContextManager[Generator]:
        """Use ``generator`` for ``tag`` in a block (of a test): nothing is made or closed."""
        return _overridden(self, tag, generator)

    def close(self) -> None:
        """Close all tags and forget them; what is left of their segments goes back."""
        with self._lock:
            allocator, self._allocator = self._allocator, None
            self.clear()
        if allocator is not None:
            allocator.close()
            for tag, generator in list(allocator.segments.items()):
                _say_goodbye("tag", tag, generator)

    def forget(self) -> None:
        """After a fork: every tag drops its parent's segments."""
        self._lock = threading.Lock()
        if self._allocator is not None:
            self._allocator.forget()


generators = GeneratorMap()
segments = SegmentMap()
_parsed: list[IdgenSettings] = []
on_goodbye: list[Callable[[str, str, Generator], None]] = []
"""Called with the kind ("generator" or "tag"), the name and the generator that left its map."""


def _say_goodbye(kind: str, name: str, generator: Generator) -> None:
    for listener in on_goodbye:
        listener(kind, name, generator)


def next_id(alias: str = DEFAULT_ALIAS) -> int:
    """The next id of ``generators[alias]``."""
    return generators[alias].next_id()


# As everybody imports it: a migration of a field with ``default=next_id`` writes it down.
next_id.__module__ = "django_idgen"


def reset() -> None:
    """Close everything, and forget what only this process knows."""
    _start_over()
    segments.forget_loaded()
    forget_in_process()


def _start_over() -> None:
    """Close everything and read the settings anew at the next use."""
    _parsed.clear()
    generators.close()
    segments.close()


def forget() -> None:
    """In the child of a fork: nothing of the parent's is used (called by :mod:`.lifecycle`)."""
    signals.forget()
    generators.forget()
    segments.forget()


def generator_settings(alias: str) -> GeneratorSettings:
    """The entry of an alias; nothing is made. Raises :class:`SettingsError` if unknown."""
    known = current_settings().generators
    if alias in current_settings().tag_generators:
        raise SettingsError(
            f"Generator {alias!r} gives ids of a tag, which have neither a time nor a worker id."
        )
    if alias not in known:
        raise SettingsError(
            f"There is no generator {alias!r} in IDGEN['GENERATORS']. There are "
            f"{', '.join(map(repr, generators))}."
        )
    return known[alias]


def _single(tag: str, taken: int) -> Generator:
    """A generator of ``tag`` with an allocator of its own, so that closing it leaves nothing."""
    allocator: SegmentAllocator = wiring().build_allocator(current_settings().segments)
    made = allocator.generator(tag)
    made.go_past(taken)
    return made


def current_settings() -> IdgenSettings:
    for known in _parsed:
        return known
    _parsed.append(wiring().read_settings())
    return current_settings()


def wiring() -> ModuleType:
    """The module that makes generators of the settings, and reads these."""
    from . import factory

    return factory


def import_backends() -> None:
    """Import the wiring, and the classes that the settings name.

    Called before a fork: if another thread were importing them at that very moment, for the
    first id, the child would be left with an import lock that is never given back.
    """
    wiring().import_backends()


def import_backends_if_prefork() -> None:
    """As :func:`import_backends`, in a master that forks without calling Python's hooks."""
    if is_prefork():
        import_backends()


def on_setting_changed(*, setting: str, **_kwargs: Any) -> None:
    """Receiver of Django's ``setting_changed``."""
    if setting in {"IDGEN", "DATABASES", "CACHES"}:
        _start_over()  # the databases in this process are what they were


lifecycle.register(close=reset, forget=forget, before_fork=import_backends)
