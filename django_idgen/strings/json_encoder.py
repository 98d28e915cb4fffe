"""JSON that JavaScript reads exactly: integers past 2**53 - 1 are strings.

    JsonResponse(data, encoder=IdJSONEncoder)
    json.dumps(data, cls=IdJSONEncoder)
    django.utils.html.json_script(data, "order", encoder=IdJSONEncoder)

JavaScript has no integers, only doubles: it reads 9007199254740993 as 9007199254740992.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, KeysView, ValuesView
from typing import Any, ClassVar

from django.core.serializers.json import DjangoJSONEncoder

MAX_SAFE = 2**53 - 1
"""``Number.MAX_SAFE_INTEGER``."""

_LEAVES = frozenset({str, float, bool, type(None)})


class IdJSONEncoder(DjangoJSONEncoder):
    """``DjangoJSONEncoder`` that writes every integer beyond ±(2**53 - 1) as a string.

    It does so at any depth: in dictionaries, lists and tuples, in iterators and dictionary views
    (written as lists), and in the result of ``default()``, also of a subclass.

    A subclass may name keys whose integers are always strings, so that a client always gets the
    same type::

        class OrderEncoder(IdJSONEncoder):
            id_keys = frozenset({"id", "customer_id"})

    This includes the members of a list under such a key.
    """

    id_keys: ClassVar[Collection[str]] = frozenset()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Wrap the instance's: a subclass, or an argument, may have replaced default().
        given = self.default
        self.default = lambda o: self._safe(given(o))  # type: ignore[method-assign]

    def default(self, o: Any) -> Any:
        if isinstance(o, Iterator | KeysView | ValuesView | ItemsView):
            return list(o)
        return super().default(o)

    def iterencode(self, o: Any, _one_shot: bool = False) -> Iterator[str]:
        try:
            safe = self._safe(o)
        except RecursionError:
            # Let json raise its own error for a list that contains itself.
            "".join(super().iterencode(o, _one_shot))
            raise
        return super().iterencode(safe, _one_shot)

    def _safe(self, value: Any) -> Any:
        """``value`` with its large integers as strings; other leaves unchanged."""
        kind = type(value)
        if kind in _LEAVES:
            return value
        if kind is int:
            return value if -MAX_SAFE <= value <= MAX_SAFE else str(value)
        if isinstance(value, dict):
            if self.id_keys:
                return {key: self._under(key, each) for key, each in value.items()}
            return {
                # Most values are leaves: save the call.
                key: each if type(each) in _LEAVES else self._safe(each)
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._safe(each) for each in value]
        if isinstance(value, int) and not -MAX_SAFE <= value <= MAX_SAFE:
            return int.__repr__(value)  # the repr of an IntEnum is its name
        return value

    def _under(self, key: object, value: Any) -> Any:
        if key not in self.id_keys:
            return self._safe(value)
        if isinstance(value, list | tuple):
            return [self._under(key, each) for each in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return int.__repr__(value)
        return self._safe(value)
