"""A task that keeps the shop busy, so that there is something to look at."""

from __future__ import annotations

import random

from celery import shared_task

from .selling import sell


@shared_task
def sell_some(most: int = 20) -> int:
    """Place a few orders."""
    count = random.randint(1, most)
    for _ in range(count):
        sell()
    return count
