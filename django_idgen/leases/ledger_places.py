"""Which ledgers a registry keeps in a database: by where the marks of its alias stand."""

from __future__ import annotations

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.lease import Namespace
from ..core.ledger import Ledger
from ..db.connection import Place, place_of
from ..db.stores import marks_of
from .server_ledger import ServerLedger
from .sqlite_ledger import SqliteLedger

__all__ = ["ledgers_in"]


def ledgers_in(
    namespace: Namespace,
    database: str,
    *,
    timeout: float = 10.0,
    server_identity: bool = True,
    clock: Clock = SYSTEM_CLOCK,
) -> list[Ledger]:
    """That of ``namespace`` in the alias ``database``; none where marks stand in a process."""
    place = place_of(database)
    if place.in_process:
        return []
    if place is Place.FILE:
        return [
            SqliteLedger(
                namespace,
                marks=marks_of(database),
                alias=database,
                read_now_us=lambda: clock.wall_ns() // 1000,
            )
        ]
    return [
        ServerLedger(
            namespace,
            alias=database,
            timeout=timeout,
            server_identity=server_identity,
            clock=clock,
        )
    ]
