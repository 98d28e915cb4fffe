"""What the Celery tasks do, once: for cron, or any other scheduler."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...core.errors import IdgenError
from ...ops.native import extend_native
from ...ops.preloading import preload_segments
from ...ops.upkeep import KEPT_DAYS, prune_history, renew_worker_leases

__all__ = ["Command"]


class Command(BaseCommand):
    help = (
        "Renew the worker ids of processes that can't do it just now, keep ids ready in the pool, "
        "extend the sequences of idgen_native, and delete old history: once. Have it run every "
        "minute, unless Celery beat does the same."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--outage",
            type=float,
            metavar="SECONDS",
            help="without a database, that the ids in the pool are to last (default: the setting)",
        )
        parser.add_argument(
            "--days",
            type=float,
            default=KEPT_DAYS,
            help=f"that the history is kept (default: {KEPT_DAYS:g})",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        jobs: list[tuple[str, Callable[[], Any]]] = [
            ("renew_worker_leases", renew_worker_leases),
            ("preload_segments", partial(preload_segments, options["outage"])),
            ("extend_native", extend_native),
            ("prune_history", partial(prune_history, options["days"])),
        ]
        failures = [failure for name, job in jobs if (failure := self._run(name, job))]
        if failures:
            raise CommandError("\n".join(failures))

    def _run(self, name: str, job: Callable[[], Any]) -> str:
        """Run one job and say what came of it; returns what went wrong, if anything did."""
        try:
            done = job()
        except IdgenError as error:
            return f"{name}: {error}"
        self.stdout.write(f"{name}: {json.dumps(done)}")
        return ""
