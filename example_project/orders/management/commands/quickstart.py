"""See it work: rows saved from several processes and threads at once, no id twice."""

from __future__ import annotations

import multiprocessing
import shlex
import sys
import threading
from argparse import ArgumentParser
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
from django.core.management import BaseCommand, CommandError, call_command
from django.db import connections

from django_idgen import generators
from django_idgen.core.segment import Segment
from django_idgen.signals import segment_loaded

MANY = 10_000


class Command(BaseCommand):
    help = "Migrate, save orders and parcels from several processes and threads, check their ids."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--orders", type=int, default=400, help="orders to save (400)")
        parser.add_argument("--processes", type=int, default=2, help="processes (2)")
        parser.add_argument("--threads", type=int, default=4, help="threads in each (4)")

    def handle(self, **options: Any) -> None:
        processes, threads = options["processes"], options["threads"]
        each = options["orders"] // max(processes * threads, 1)
        if not (1 <= processes <= 16 and 1 <= threads <= 16 and 1 <= each <= MANY):
            raise CommandError(
                "--processes and --threads take 1 to 16, and --orders must give each "
                f"thread 1 to {MANY} orders (it gives {each})."
            )
        self._say(f"1. Making the tables in {_database()} ...")
        call_command("migrate", verbosity=0)
        total = each * processes * threads
        self._say(f"2. Saving {total} orders and {total} parcels: {processes} processes,")
        self._say(f"   {threads} threads in each, all at once ...")
        shares = _save_in_processes(processes, threads, each)
        self._show_workers(shares)
        self._take_apart(shares)
        self._prove(shares, total)
        self._go_on()

    def _say(self, text: str) -> None:
        self.stdout.write(text)

    def _show_workers(self, shares: list[Share]) -> None:
        for share in shares:
            self._say(
                f"   process {share.process}: worker id {share.worker}, "
                f"{len(share.orders)} orders, {len(share.parcels)} parcels"
            )

    def _take_apart(self, shares: list[Share]) -> None:
        decode: Any = generators["default"]
        self._say("3. A few orders' ids, taken apart (SnowflakeField):")
        for share in shares:
            for value in share.orders[:2]:
                parts = decode.decode(value)
                moment = parts.created.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
                self._say(
                    f"   {value} = {moment} UTC, worker {parts.worker}, sequence {parts.sequence}"
                )
        self._say("   A few parcels' ids (SegmentIdField):")
        for share in shares:
            for segment in share.segments[:2]:
                value = min(number for number in share.parcels if number in segment.ids())
                self._say(
                    f"   {value} = tag {segment.tag!r}, out of the segment "
                    f"{segment.start}..{segment.stop - 1} of process {share.process}"
                )

    def _prove(self, shares: list[Share], total: int) -> None:
        from orders.models import Order, Parcel

        orders = [value for share in shares for value in share.orders]
        parcels = [value for share in shares for value in share.parcels]
        for name, ids in (("order", orders), ("parcel", parcels)):
            repeated = [value for value, times in Counter(ids).items() if times > 1]
            if repeated or len(ids) != total:
                raise CommandError(f"{name} ids repeat: {repeated[:5]} ({len(ids)} of {total}).")
        stored = Order.objects.filter(pk__in=orders).count()
        packed = Parcel.objects.filter(pk__in=parcels).count()
        if (stored, packed) != (total, total):
            raise CommandError(f"Of {total} rows, {stored} orders and {packed} parcels are there.")
        self._say(
            f"4. {total} orders and {total} parcels in the database, no id twice: "
            + self.style.SUCCESS("OK")
        )

    def _go_on(self) -> None:
        manage = _manage()
        self._say(
            f"\nGo on with (from the same folder):\n"
            f"  {manage} createsuperuser\n"
            f"  {manage} runserver\n"
            f"      the shop, live, at http://127.0.0.1:8000/, and its admin, at /admin/\n"
            f"  {manage} idgen_bench --count 200000\n"
            f"      how fast, and is it unique?\n"
            f"  {manage} shell\n"
            f"      from django_idgen import next_id; next_id()"
        )


def _manage() -> str:
    """How this command was run, without its name: to be copied into the same shell."""
    here, words = Path.cwd(), (sys.executable, sys.argv[0])
    near = [
        Path(word).relative_to(here) if Path(word).is_relative_to(here) else word for word in words
    ]
    return shlex.join(str(word) for word in near)


@dataclass(frozen=True, slots=True)
class Share:
    """What one process saved."""

    process: int
    worker: int
    orders: list[int]
    parcels: list[int]
    segments: list[Segment]
    """The segments that the parcels' ids come from, in order."""


def _database() -> str:
    settings_dict = connections["default"].settings_dict
    return f"{connections['default'].vendor} ({settings_dict['NAME']})"


def _save_in_processes(processes: int, threads: int, each: int) -> list[Share]:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        # All start together, or they would hardly meet.
        barrier = manager.Barrier(processes)
        with ProcessPoolExecutor(processes, context, initializer=django.setup) as pool:
            futures = [
                pool.submit(save_share, number, threads, each, barrier)
                for number in range(1, processes + 1)
            ]
            return [future.result() for future in futures]


def save_share(process: int, threads: int, each: int, barrier: threading.Barrier) -> Share:
    """Save ``each`` orders and parcels in each of ``threads`` threads of this process."""
    taken: list[Segment] = []
    segment_loaded.connect(lambda segment, **_: taken.append(segment), weak=False)
    barrier.wait(60)
    saved = [_save(1)]
    # Again, since SQLite lets one process write for a while before it turns to another.
    barrier.wait(60)
    with ThreadPoolExecutor(threads) as pool:
        saved += pool.map(_save, [each - 1, *[each] * (threads - 1)])
    stats: Any = generators["default"].stats()
    parcels = [parcel for _, parcels in saved for parcel in parcels]
    return Share(
        process,
        stats.lease.worker,
        [order for orders, _ in saved for order in orders],
        parcels,
        [each for each in taken if each.tag == "parcel" and set(each.ids()) & set(parcels)],
    )


def _save(count: int) -> tuple[list[int], list[int]]:
    from orders.models import Parcel
    from orders.selling import sell

    try:
        orders = [sell().pk for _ in range(count)]
        return orders, list(Parcel.objects.filter(order__in=orders).values_list("pk", flat=True))
    finally:
        connections.close_all()
