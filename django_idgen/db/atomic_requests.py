"""Views that no ``ATOMIC_REQUESTS`` wraps, whichever database it is set on.

Django's own :func:`~django.db.transaction.non_atomic_requests` leaves out one database. A
probe that began a transaction on another would fail, or hang, with that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["never_atomic"]

View = TypeVar("View", bound=Callable[..., Any])


class EveryDatabase(set[str]):
    """What Django asks whether a database is left out: each is, one added later as well."""

    def __contains__(self, alias: object) -> bool:
        return True


def never_atomic(view: View) -> View:
    """Have ``view`` run outside of all requests' transactions. Returns it; for decorators, too."""
    # Where Django's decorator notes the databases, and where views look for them.
    view._non_atomic_requests = EveryDatabase()  # type: ignore[attr-defined]
    return view
