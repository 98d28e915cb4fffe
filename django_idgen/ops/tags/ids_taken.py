"""How many ids the rows of a history are about, counted in the database.

What lies in the pool is taken by nobody yet: a row says that it was put in, and another
one who took it out again. So the former count against what was fetched.
"""

from __future__ import annotations

from typing import Any

from django.db.models import BigIntegerField, Case, F, Sum, Value, When
from django.db.models.functions import Cast

__all__ = ["POOL", "net_ids"]

POOL = "pool"
"""The holder of what lies in the pool: see :mod:`...sources.pool.scripts`."""


def net_ids() -> Sum:
    """The sum over rows of one ``delta``, as ``delta`` times the number of ids.

    A multiple of it, so that no database has to divide.
    """
    # MySQL's unsigned numbers know no difference below 0.
    delta: Any = Cast("delta", BigIntegerField())
    beyond = F("stop") - F("start") + delta - Value(1, BigIntegerField())
    whole = beyond - beyond % delta
    put_in = whole * Value(-1, BigIntegerField())
    return Sum(Case(When(holder=POOL, then=put_in), default=whole, output_field=BigIntegerField()))
