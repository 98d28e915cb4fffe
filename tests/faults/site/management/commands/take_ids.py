"""A command that takes ids and ends, as an import or a nightly job does."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from tests.faults.site.taking import record, take


class Command(BaseCommand):
    help = "Take five ids."

    def handle(self, *args: Any, **options: Any) -> None:
        record(take(5))
