"""``manage.py idgen_upkeep``: the Celery tasks, once, for cron or any other scheduler."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...core.errors import IdgenError
from ...ops.native import extend_native
from ...ops.upkeep import (
    KEPT_DAYS,
    preload_segments,
    prune_history,
    renew_worker_leases,
)


class Command(BaseCommand):
    help = (
        "Renew the worker ids of blocked processes, keep ids ready in the pool, extend the "
        "sequences of idgen_native, and delete old history, once. Run it every minute, unless "
        "Celery beat runs the tasks."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--outage",
            type=float,
            metavar="SECONDS",
            help="how long the ids in the pool last without the database (default: the setting)",
        )
        parser.add_argument(
            "--days",
            type=float,
            default=KEPT_DAYS,
            help=f"how long the history is kept (default: {KEPT_DAYS:g})",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        jobs: dict[str, Callable[[], Any]] = {
            "renew_worker_leases": renew_worker_leases,
            "preload_segments": partial(preload_segments, options["outage"]),
            "extend_native": extend_native,
            "prune_history": partial(prune_history, options["days"]),
        }
        failures = []
        for name, job in jobs.items():
            try:
                self.stdout.write(f"{name}: {json.dumps(job())}")
            except IdgenError as error:
                failures.append(f"{name}: {error}")
        if failures:
            raise CommandError("\n".join(failures))
