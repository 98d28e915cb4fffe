"""What stands under a ``BACKEND`` of the settings: a class, by its dotted path, and its options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.utils.module_loading import import_string

from ..core.errors import ConfigurationError, WorkerOutOfRange
from .values import SettingsError, refuse_unknown

__all__ = ["BackendSettings"]


NO_OPTIONS = ("clock", "emit", "own")
"""Arguments of constructors that settings can't give: objects for tests, and of the wiring."""
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """A dotted path to a class, and the keyword arguments it is made with."""

    where: str
    """The path of the setting, for messages: ``IDGEN["GENERATORS"]["default"]["LEASES"]``."""
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    """Options that stand beside these in the settings and are taken by the wiring, for messages."""
    base: type = object
    """What the class must derive from."""

    def load(self) -> Any:
        """The class. Raises :class:`SettingsError` if there is none."""
        try:
            found = import_string(self.path)
        except ImportError as error:
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r}, which can't be imported: {error}"
            ) from error
        except ConfigurationError as error:
            # What it needs is not installed.
            raise SettingsError(f"{self.where}['BACKEND'] is {self.path!r}: {error}") from error
        except RuntimeError as error:
            # What Django says of the models of an app that is not installed.
            if apps.is_installed("django_idgen"):
                raise
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r}, which has tables: add 'django_idgen' "
                f"to INSTALLED_APPS."
            ) from error
        if not isinstance(found, type) or not issubclass(found, self.base):
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r} ({found!r:.80}), which does not "
                f"derive from {self.base.__module__}.{self.base.__name__} and so is of another "
                f"kind than is needed here. Leave it out for the default."
            )
        return found

    def build(self, *args: Any, **given: Any) -> Any:
        """An instance, from ``args``, what the wiring gives, and the options.

        Raises :class:`SettingsError` for options that the class doesn't take.
        """
        backend = self.load()
        # An option is a keyword argument of the constructor, as every class documents them.
        taken = list(inspect.signature(backend).parameters.values())[len(args) :]
        known = (p.name for p in taken if p.name not in {*NO_OPTIONS, *given})
        where = f"{self.where}['OPTIONS']"
        refuse_unknown(where, self.options, tuple(dict.fromkeys((*self.also, *known))))
        needed = {p.name for p in taken if p.default is p.empty and p.kind in NAMED}
        if missing := needed - {*self.options, *given}:
            raise SettingsError(
                f"{where} lacks {', '.join(map(repr, sorted(missing)))}, which {self.path} needs."
            )
        try:
            return backend(*args, **given, **self.options)
        except (ConfigurationError, WorkerOutOfRange) as error:
            raise SettingsError(f"{self.where}['OPTIONS']: {error}") from error
