"""Act once a module has been imported, be that now, later or never.

Django REST framework, django-filter, drf-spectacular and django-ninja are at work in
projects that don't name them in ``INSTALLED_APPS``. To import what is merely installed
would slow every command down (a fifth of a second for the first alone), and fail where a
package is there but broken; to have the user import something of ours first would be
forgotten, and numbers would be sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["when_imported"]


@dataclass(frozen=True, slots=True)
class _Watch:
    library: str
    act: Callable[[], None]
    ours: tuple[str, ...]

    def look(self, name: str) -> None:
        """``name`` has been imported: it may be what was missing."""
        half_way = any(each in sys.modules and each not in _done for each in self.ours)
        if name in (self.library, *self.ours) and self.library in _done and not half_way:
            self.act()


_watches: dict[str, _Watch] = {}
_watched: set[str] = set()
_done: set[str] = set()


def when_imported(library: str, act: Callable[[], None], *ours: str) -> None:
    """Call ``act`` right after module ``library`` has run, before its importer goes on.

    At once if it was imported before. ``ours`` are modules that import ``library``, and
    that ``act`` uses: where one of them is what is being imported, it is ``act`` that
    waits for its end. It may be called again, and what it raises is raised by the import.

    Call this while there is one thread, as ``ready()`` does.
    """
    _watches[library] = watch = _Watch(library, act, ours)
    _watched.update((library, *ours))
    _done.update(name for name in (library, *ours) if name in sys.modules)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    watch.look(library)


class _Finder(MetaPathFinder):
    """Finds nothing by itself: it puts its loader around what the others find."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _watched:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Who looks at the module later finds its own loader: for its source, for resources.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _done.add(module.__name__)
        for watch in _watches.values():
            watch.look(module.__name__)


_finder = _Finder()
