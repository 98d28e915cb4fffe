"""The process-wide maps: ``generators`` and ``registries`` by alias, ``segments`` by tag.

Unlike Django's connections they are process-wide: all threads and tasks of a process share a
generator, and so the worker id that it holds. Generators are made on first use. Importing this
module reads no settings.

Models need the maps when they are defined. Only the first id needs :mod:`.factory`, with the
settings, the generators and the adapters: :func:`wiring` imports it then, or
:func:`import_backends` before a fork.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.core.signals import setting_changed

from .. import signals
from ..core.errors import SegmentUnavailable
from ..core.generator import Generator, Watch
from ..core.loader import PerProcess, is_prefork
from ..core.segment import check_tag
from ..db.connection import forget_in_process
from ..settings import DEFAULT_ALIAS, SettingsError, refuse_without_app
from . import exits, lifecycle

if TYPE_CHECKING:
    from ..core.registry import Registry
    from ..core.segment_generator import SegmentAllocator, SegmentGenerator
    from ..core.tag_generator import TagGenerator
    from ..settings.config import GeneratorSettings, IdgenSettings


T = TypeVar("T")
SETTINGS = frozenset({"IDGEN", "DATABASES", "CACHES"})
"""Those of a project whose change, in a test, makes all of this anew."""


class AliasMap(ABC, Generic[T]):
    """An object for each alias of ``IDGEN["GENERATORS"]``, made on first use.

    Thread-safe: all threads get the same object.
    """

    def __init__(self) -> None:
        self._made: dict[str, T] = {}
        self._aside: list[tuple[str, T]] = []
        """Those that have left the map, but are not closed yet. A fork must find them, too."""
        self._lock = threading.Lock()

    def __getitem__(self, alias: str) -> T:
        """Raises what :meth:`build` raises for an unknown alias."""
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
        """Make the object of ``alias``."""

    @abstractmethod
    def end(self, alias: str, made: T) -> None:
        """Close an object that has left the map."""

    @abstractmethod
    def drop_inherited(self, made: T) -> None:
        """In the child of a fork, drop the parent's grants."""

    @contextmanager
    def override(self, alias: str, made: T) -> Iterator[T]:
        """Use ``made`` as ``alias`` during a block of a test. Nothing is made or closed."""
        aside = [(alias, self._made[alias])] if alias in self._made else []
        self._aside += aside
        self._made[alias] = made
        try:
            yield made
        finally:
            self._made.pop(alias, None)
            for entry in aside:
                if entry in self._aside:  # else it was closed meanwhile
                    self._made[alias] = entry[1]
                    self._aside.remove(entry)

    def close(self) -> None:
        """Close all of them and forget them. May be called twice."""
        with self._lock:  # so that no thread adds to the old map
            self._aside += self._made.items()
            self._made = {}
        for entry in list(self._aside):
            self.end(*entry)
            with suppress(ValueError):  # another thread closes it, too
                self._aside.remove(entry)

    def forget(self) -> None:
        """After a fork, drop what came from the parent."""
        self._lock = threading.Lock()
        every = [*self._made.values(), *(made for _alias, made in self._aside)]
        exits.call_all(partial(self.drop_inherited, each) for each in every)


class GeneratorMap(AliasMap[Generator]):
    """``generators[alias]``: the generator of an alias of ``IDGEN["GENERATORS"]``.

    Raises :class:`SettingsError` for an alias that is not configured.
    """

    def __iter__(self) -> Iterator[str]:
        found = current_settings()
        return iter([*found.generators, *found.tag_generators])

    def __contains__(self, alias: object) -> bool:
        return alias in list(self)

    def build(self, alias: str) -> Generator:
        made: Generator
        if tagged := current_settings().tag_generators.get(alias):
            of_tag: TagGenerator = wiring().build_tag_generator(tagged)
            if of_tag.may_pass_rows:
                of_tag.watch = segments.watch_for(of_tag)
            made = of_tag
        else:
            made = wiring().build_generator(generator_settings(alias))
        return made

    def of_field(self, field: Any, using: str | None = None) -> Generator:
        """The generator of a field. Ids of a tag are above all rows of the field's table."""
        alias = field.generator
        found = self[alias]
        if found.watch is not None:
            found.watch.follow(field, using)
        return found

    def made(self) -> dict[str, Generator]:
        """The generators that this process has made."""
        return dict(self._made)

    def end(self, alias: str, made: Generator) -> None:
        made.close()
        _notify_removed("generator", alias, made)

    def drop_inherited(self, made: Generator) -> None:
        made.forget()


class SegmentMap(dict[str, Generator]):
    """``segments[tag]``: the generator of a tag of ``LeafAlloc``, made on first use.

    The tag is made, too, unless ``make_tags`` is False and no field has it: then an unknown
    tag raises :class:`TagUnknown`. An invalid tag raises :class:`InvalidTag`.

    It holds the tags that this process has used. A dictionary, so that the look-up of a known tag
    is one dictionary look-up. Thread-safe.
    """

    def __init__(self) -> None:
        super().__init__()
        self._allocator: SegmentAllocator | None = None
        self._leaving: list[SegmentAllocator] = []
        """Those that are not closed yet. A fork must find them, too."""
        self.fields: dict[str, list[Any]] = {}
        """By tag: the project's fields that have it."""
        self._loaded: dict[str, int] = {}
        """By tag: the highest id of the rows that this process has loaded."""
        self._lock = threading.Lock()

    def __missing__(self, tag: str) -> Generator:
        if tag not in self.fields and not current_settings().segments.make_tags:
            try:
                _tags().check_made(check_tag(tag))
            except SegmentUnavailable:
                # A pool may still have its ids. Not kept: the next look-up asks again.
                generator = self.open(tag)
                self.pop(tag, None)
                return generator
        return self.open(tag)

    def of_field(self, field: Any, using: str | None = None) -> Generator:
        """The generator of a field's tag: its next id is above all rows of the field's table.

        The field may be a migration's. ``using``: the alias that the row goes to, if it is known;
        else routers say it. Raises :class:`SegmentUnavailable` if the table can't be
        looked at.
        """
        tag: str = field.resolved_tag
        found = self.get(tag)
        if found is None or (found.watch is None and self._is_own(tag, found)):
            return self.open(tag, field, using=using)
        if found.watch is not None:
            found.watch.follow(field, using)
        return found

    def open(self, tag: str, *fields: Any, using: str | None = None) -> Generator:
        """Like ``segments[tag]``, but the tag is made whatever ``make_tags`` says.

        Its next id is above all rows of the tables of ``fields``.
        """
        _tags()
        check_tag(tag)
        allocator = self.allocator()
        made = allocator.generator(tag)
        if top := self._loaded.get(tag):
            made.go_past(top)
        self.follow(made, *fields, using=using)
        with self._lock:
            # Not kept: a generator that was closed meanwhile. The next look-up makes another.
            return self.setdefault(tag, made) if allocator is self._allocator else made

    def follow(self, generator: SegmentGenerator, *fields: Any, using: str | None = None) -> None:
        """Give only ids of ``generator`` above all rows of the tables of ``fields``."""
        if fields:
            with self._lock:
                generator.watch = watch = generator.watch or self.watch_for(generator)
            for field in fields:
                watch.follow(field, using)

    def _watch_of(self, generator: SegmentGenerator) -> Watch | None:
        return self.watch_for(generator) if generator.tag in self.fields else None

    def watch_for(self, generator: SegmentGenerator) -> Watch:
        """What looks at the tables of the fields of the generator's tag."""
        from .watch import FieldWatch

        return FieldWatch(generator, self.fields.get(generator.tag, ()))

    def _is_own(self, tag: str, generator: Generator) -> bool:
        return self._allocator is not None and self._allocator.segments.get(tag) is generator

    def forget_loaded(self) -> None:
        """Forget which rows this process has loaded."""
        self._loaded.clear()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tags>"

    def allocator(self) -> SegmentAllocator:
        """The maker of the tags' generators. Raises :class:`SettingsError`."""
        found = self._allocator
        if found is None:
            with self._lock:
                found = self._allocator
                if found is None:
                    found = wiring().build_allocator(current_settings().segments)
                    found.on_drop = self._drop
                    found.watch_of = self._watch_of
                    self._allocator = found
                    lifecycle.watch()
        return found

    def go_past(self, tag: str, top: int) -> None:
        """Give out no id of ``tag`` up to ``top`` in this process: loaded rows have them.

        Raises :class:`SettingsError` and :class:`InvalidTag`.
        """
        with self._lock:
            self._loaded[tag] = max(top, self._loaded.get(tag, 0))
        self.allocator().generator(tag).go_past(top)

    def _drop(self, tag: str, generator: Generator) -> None:
        """The allocator has dropped a tag that was idle."""
        with self._lock:
            if self.get(tag) is generator:
                del self[tag]
        _notify_removed("tag", tag, generator)

    def made(self) -> dict[str, Generator]:
        """The tags that this process uses, without those that have been idle for long."""
        allocator = self._allocator
        # A dropped generator comes back if a caller that kept it uses it.
        known: dict[str, Any] = {} if allocator is None else dict(allocator.segments)
        return {**known, **dict(self)}

    @contextmanager
    def override(self, tag: str, generator: Generator) -> Iterator[Generator]:
        """Use ``generator`` for ``tag`` during a block of a test. Nothing is made or closed."""
        before = self.get(tag)
        self[tag] = generator
        try:
            yield generator
        finally:
            self.pop(tag, None)
            if before is not None and not getattr(before, "closed", False):
                self[tag] = before

    def close(self) -> None:
        """Close and forget all tags. Ids that are left of their segments go back to the source."""
        with self._lock:
            if self._allocator is not None:
                self._leaving.append(self._allocator)
            self._allocator = None
            self.clear()
        for allocator in list(self._leaving):
            allocator.close()
            with suppress(ValueError):  # another thread closes it, too
                self._leaving.remove(allocator)
            for tag, generator in list(allocator.segments.items()):
                _notify_removed("tag", tag, generator)

    def forget(self) -> None:
        """After a fork, drop the parent's segments."""
        self._lock = threading.Lock()
        every = [each for each in (*self._leaving, self._allocator) if each is not None]
        exits.call_all(allocator.forget for allocator in every)


class RegistryMap(AliasMap["Registry"], PerProcess):
    """``registries[alias]``: what a process inspects, looks after and lends on from.

    Unlike a generator's own registry it holds no grant of this process. A registry that is kept
    knows its Redis, and so can be asked while the database is down. It follows changes of the
    settings. Raises :class:`KeyError` for an unknown alias.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()
        lifecycle.register(close=self.close, forget=self.forget)
        setting_changed.connect(self._on_setting_changed)

    def __getitem__(self, alias: str) -> Registry:
        self.check_process()
        return super().__getitem__(alias)

    def build(self, alias: str) -> Registry:
        return self.open(current_settings().generators[alias])

    def open(self, entry: GeneratorSettings) -> Registry:
        """Make a new registry. Raises :class:`SettingsError`."""
        registry: Registry = wiring().build_registry(entry)
        registry.lend_on()  # the clocks of those it lends to are not this host's
        return registry

    def end(self, alias: str, made: Registry) -> None:  # noqa: ARG002
        made.close()

    def drop_inherited(self, made: Registry) -> None:
        made.abandon()

    def forget(self) -> None:
        super().forget()
        self._pid = os.getpid()

    def _on_setting_changed(self, *, setting: str, **_kwargs: Any) -> None:
        if setting in SETTINGS:
            self.close()


generators = GeneratorMap()
segments = SegmentMap()
_parsed: list[IdgenSettings] = []
on_removed: list[Callable[[str, str, Generator], None]] = []
"""Called when a generator leaves its map, with its kind ("generator" or "tag") and its name."""


def _notify_removed(kind: str, name: str, generator: Generator) -> None:
    for listener in on_removed:
        listener(kind, name, generator)


def next_id(alias: str = DEFAULT_ALIAS) -> int:
    """The next id of ``generators[alias]``."""
    return generators[alias].next_id()


# The public name: a migration of a field with ``default=next_id`` writes it down.
next_id.__module__ = "django_idgen"


def _tags() -> ModuleType:
    """The module of tags, imported late, since it needs models. Raises :class:`SettingsError`."""
    try:
        from . import tags
    except RuntimeError as error:
        refuse_without_app(error, "Segments have tables")
    return tags


def reset() -> None:
    """Close everything, and forget marks that only this process knows."""
    _start_over()
    segments.forget_loaded()
    forget_in_process()


def _start_over() -> None:
    """Close everything. The next use reads the settings again."""
    _parsed.clear()
    generators.close()
    segments.close()


def forget() -> None:
    """In the child of a fork, drop what came from the parent. Called by :mod:`.lifecycle`."""
    exits.call_all([signals.forget, generators.forget, segments.forget])


def generator_settings(alias: str) -> GeneratorSettings:
    """The settings of an alias. Raises :class:`SettingsError` if it is unknown."""
    known = current_settings().generators
    if alias in current_settings().tag_generators:
        raise SettingsError(
            f"Generator {alias!r} gives ids of a tag. They contain neither a time nor a worker id."
        )
    if alias not in known:
        raise SettingsError(
            f"There is no generator {alias!r} in IDGEN['GENERATORS']. Known: "
            f"{', '.join(map(repr, generators))}."
        )
    return known[alias]


def current_settings() -> IdgenSettings:
    for known in _parsed:
        return known
    _parsed.append(wiring().read_settings())
    return current_settings()


def wiring() -> ModuleType:
    """The module that reads the settings and makes generators of them."""
    from . import factory

    return factory


def import_backends() -> None:
    """Import the wiring, and the classes that the settings name. Called before a fork.

    If another thread imported them during the fork, for the first id, the child would inherit
    an import lock that is never released.
    """
    wiring().import_backends()
    from . import tags, watch  # noqa: F401  # a first id imports them


def import_backends_if_prefork() -> None:
    """Call :func:`import_backends` in a uWSGI master, which forks without Python's hooks."""
    if is_prefork():
        import_backends()


def on_setting_changed(*, setting: str, **_kwargs: Any) -> None:
    """Receiver of Django's ``setting_changed``."""
    if setting in SETTINGS:
        _start_over()  # and keep the marks of the databases in this process


lifecycle.register(close=reset, forget=forget, before_fork=import_backends)
registries = RegistryMap()
