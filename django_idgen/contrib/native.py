"""A migration operation: rows that other programs insert get ids of the field's tag."""

from __future__ import annotations

from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.state import ProjectState as State

from ..core.errors import ConfigurationError
from ..fields import SegmentSource
from ..fields.operations import TableOperation
from ..ops.native import LENGTH, NativeColumn, native_column, unsupported


class NativeIds(TableOperation):
    """Have the database give an id of its tag to each row that comes without one.

    ``NativeIds("order", "id")`` does what ``manage.py idgen_native`` does, for one column.
    Backwards it does what ``--remove`` does. ``length``: how many ids are set aside at a time.
    ``optional``: do nothing on a database that has no sequences, such as SQLite under the
    tests; otherwise ``migrate`` fails there.
    """

    def __init__(
        self, model_name: str, name: str, length: int = LENGTH, optional: bool = False
    ) -> None:
        super().__init__(model_name, name)
        self.length = length
        self.optional = optional

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        if column := self._column(app_label, editor, after):
            column.install(self.length)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        if column := self._column(app_label, editor, after):
            column.remove()

    def describe(self) -> str:
        return f"Let the database give ids to {self.model_name}.{self.name}, too"

    @property
    def migration_name_fragment(self) -> str:
        return f"native_{self.model_name.lower()}_{self.name}"

    def _column(self, app_label: str, editor: Editor, state: State) -> NativeColumn | None:
        field = self.field_in(state, app_label)
        if not isinstance(field, SegmentSource):
            raise ConfigurationError(
                f"{self!r} can't run: {field} is a {type(field).__name__}. Name a "
                f"SegmentIdField or SegmentAutoField."
            )
        column = native_column(editor.connection, field)
        if column is None and not self.optional:
            raise unsupported(editor.connection, " Give NativeIds optional=True to skip it.")
        return column
