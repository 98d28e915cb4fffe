"""The switch of a key on SQLite: each table is made anew, in the migration's transaction."""

from __future__ import annotations

from typing import Any

from django.db import models

from .filling import Filling
from .links import Keyed, Link
from .reading import columns_of
from .swap_server import refuse_orphans

__all__ = ["SqliteSwap"]


class SqliteSwap:
    """As :class:`ServerSwap`."""

    def __init__(self, editor: Any, before: Keyed, after: Keyed, *, new: str, kept: str) -> None:
        self.editor = editor
        self.connection = editor.connection
        self.before = before
        self.after = after
        self.new = new
        self.kept = kept

    def is_parent_done(self) -> bool:
        """Never: what was broken off was taken back."""
        return False

    def undone(self) -> Keyed:
        """All of it."""
        return self.before

    def run(self, filling: Filling) -> None:
        filling.finish()
        refuse_orphans(filling)
        for table in self.after.tables:
            links = [link for link in self.after.links if link.table == table]
            model = links[0].model if links else self.after.model
            self._remake(model, self._sources(table, model, links))

    def _sources(self, table: str, model: type[models.Model], links: list[Link]) -> dict[str, str]:
        """By the columns of the new table: those of the old one that they are filled from."""
        moved = {link.column: link.new_column for link in links}
        if table == self.after.table:
            moved |= {self.before.column: self.new, self.kept: self.before.column}
        there = columns_of(self.connection, table)
        columns = [str(field.column) for field in model._meta.local_concrete_fields]
        return {name: moved.get(name, name) for name in columns if moved.get(name, name) in there}

    def _remake(self, model: type[models.Model], sources: dict[str, str]) -> None:
        editor, meta = self.editor, model._meta
        table, q = meta.db_table, self.connection.ops.quote_name
        interim = f"idgen_new_{table}"
        meta.db_table = interim
        try:
            # Not create_model(), which would make the through tables, too.
            sql, params = editor.table_sql(model)
            editor.execute(sql, params or None)
            editor.deferred_sql.extend(editor._model_indexes_sql(model))
        finally:
            meta.db_table = table
        targets = ", ".join(map(q, sources))
        values = ", ".join(map(q, sources.values()))
        editor.execute(
            f"INSERT INTO {q(interim)} ({targets}) SELECT {values} FROM {q(table)}"  # noqa: S608 - Django quotes the names
        )
        editor.execute(f"DROP TABLE {q(table)}")
        editor.alter_db_table(model, interim, table)
        for statement in editor.deferred_sql:
            editor.execute(statement)
        editor.deferred_sql = []
