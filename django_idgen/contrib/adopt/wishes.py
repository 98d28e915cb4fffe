"""What the user asked for on the command line, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import models

from ...core.errors import ConfigurationError, InvalidTag
from ...core.segment import MAX_ID, check_tag
from ...fields import SegmentIdField, SnowflakeField
from ...process.handlers import generator_settings
from .filling import MOST_IN_BATCH

__all__ = ["Wishes"]

FIELDS: dict[str, type[models.Field[Any, Any]]] = {
    "segment": SegmentIdField,
    "snowflake": SnowflakeField,
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of ``idgen_adopt``. Frozen; raises :class:`ConfigurationError` when made."""

    kind: str = ""
    """``segment`` or ``snowflake``; empty: what suits the table's key."""
    generator: str = ""
    tag: str = ""
    margin: int | None = None
    batch: int = 1000
    at_once: bool = False
    back: bool = False
    keep_as: str = ""

    def __post_init__(self) -> None:
        if self.generator and self.tag:
            raise ConfigurationError("Give --generator (snowflakes) or --tag (segments), not both.")
        if (self.generator and self.kind == "segment") or (self.tag and self.kind == "snowflake"):
            raise ConfigurationError(
                "--generator is for --field snowflake, and --tag for --field segment."
            )
        if self.generator:
            generator_settings(self.generator)
        if self.tag:
            try:
                check_tag(self.tag)
            except InvalidTag as error:
                raise ConfigurationError(str(error)) from error
        if not 1 <= self.batch <= MOST_IN_BATCH:
            raise ConfigurationError(f"--batch must be 1 to {MOST_IN_BATCH}, not {self.batch}.")
        if self.margin is not None and not 1 <= self.margin <= MAX_ID // 4:
            raise ConfigurationError(f"--margin must be 1 to {MAX_ID // 4}, not {self.margin}.")

    def resolved(self, default: str) -> str:
        """The kind of field, where ``default`` suits the table's key."""
        if self.kind:
            return self.kind
        return "snowflake" if self.generator else "segment" if self.tag else default

    def options(self) -> dict[str, Any]:
        named = {"generator": self.generator, "tag": self.tag}
        return {name: value for name, value in named.items() if value}

    def field(self, default: str = "segment", **options: Any) -> models.Field[Any, Any]:
        """The key that the table is to have."""
        kind = FIELDS[self.resolved(default)]
        # As Django writes down any primary key.
        return kind(primary_key=True, serialize=False, **self.options(), **options)

    def field_text(self, more: str = "", default: str = "segment") -> str:
        """The same, as it is written in a model."""
        options = "".join(f", {name}={value!r}" for name, value in self.options().items())
        return f"{FIELDS[self.resolved(default)].__name__}(primary_key=True{options}{more})"
