"""What a database as a whole knows of its segments: the installation's row.

It outlives the tags' rows: how long their ranges were, which server they were taken
on, where new ones start, and which databases share them.
"""

from __future__ import annotations

import json
from secrets import token_hex

from django.db.models import Max

from ..core.lease import PROTOCOL_VERSION
from ..core.segment import MAX_ID
from ..db.row_writes import insert_row, update_row
from ..models import Installation, LeafAlloc

__all__ = ["InstallationRecord"]

ANY = ""
"""Stands for every namespace in an installation's row that was made anew."""


class InstallationRecord:
    """The row of ``alias``, in the transaction of the calling thread.

    Holds no state of its own, so that threads may share it.
    """

    def __init__(self, alias: str, *, failover_skip: int) -> None:
        self.alias = alias
        self._failover_skip = failover_skip

    def lock(self) -> Installation:
        """The row, locked; made anew if somebody deleted it."""
        rows = Installation.objects.using(self.alias).filter(pk=1)
        return rows.select_for_update().first() or self._remade()

    def _remade(self) -> Installation:
        """The row anew, which somebody deleted."""
        made = Installation(
            key=1,
            identity=token_hex(16),
            protocol=PROTOCOL_VERSION,
            namespaces=json.dumps({ANY: {}}),
        )
        self._recall(made)
        insert_row(made, self.alias)
        return made

    def _recall(self, installation: Installation) -> None:
        """Have a row that was made anew know what the tags' rows do, and suppose a loss."""
        tags = LeafAlloc.objects.using(self.alias)
        known = tags.aggregate(
            largest=Max("largest_step", default=0), delta=Max("delta", default=1)
        )
        installation.largest_step = max(installation.largest_step, known["largest"])
        installation.first_id = self.past_loss(installation.first_id, known["largest"])
        rows = tags.filter(delta=known["delta"]).values_list("remainder", flat=True)
        remainders = set(rows.order_by("remainder").distinct()[:2])
        if len(remainders) == 1:
            installation.delta, installation.remainder = known["delta"], remainders.pop()

    def notice_server(self, installation: Installation, server: str) -> bool:
        """See whether ``server`` took over from another; whether anything was written."""
        if not server or installation.server == server:
            return False
        if installation.server:
            longest = max(installation.largest_step, 1)
            installation.first_id = self.past_loss(installation.first_id, longest)
        elif LeafAlloc.objects.using(self.alias).exclude(server="").exists():
            self._recall(installation)  # it is a registry of leases that made it anew
        installation.server = server
        names = ("server", "first_id", "largest_step", "delta", "remainder")
        update_row(installation, self.alias, *names)
        return True

    def past_loss(self, mark: int, longest: int) -> int:
        """Past what fetches of at most ``longest`` may have taken from ``mark`` on."""
        return min(mark + self._failover_skip * longest, MAX_ID)

    def raise_longest(self, installation: Installation, wanted: int) -> bool:
        """Have it know of ranges of ``wanted``; whether it did not."""
        if installation.largest_step >= wanted:
            return False
        installation.largest_step = wanted
        update_row(installation, self.alias, "largest_step")
        return True

    def is_growing(self) -> bool:
        """Whether processes that know of fewer databases are still welcome."""
        rows = Installation.objects.using(self.alias).filter(pk=1)
        return bool(rows.values_list("growing", flat=True).first())
