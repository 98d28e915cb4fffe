"""Forks of the process in which other tests have taken ids."""

from __future__ import annotations

import os
import threading
import time
import unittest
import warnings
from pathlib import Path

from django.test import SimpleTestCase, TestCase, TransactionTestCase

from django_idgen import next_id, segments
from django_idgen.core.loader import PATIENCE

from .models import Invoice, Order


def _ours() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("idgen")]


def _threads() -> int:
    """How many threads the process has, also those that Python's module did not start."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()


@unittest.skipUnless(hasattr(os, "fork"), "This system has no fork.")
class Fork:
    """Runs after the ids of the class, and of the tests before, were taken."""

    def assert_no_warning(self) -> None:
        alone = _threads() - len(_ours()) == 1
        with warnings.catch_warnings(record=True) as warned:
            # As an error Python 3.12 would drop it.
            warnings.simplefilter("always")
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                os._exit(0)
        ours = _ours()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(ours, [])
        in_time = time.monotonic() - began < PATIENCE  # a busy machine may take longer
        if alone and in_time:  # pytest-xdist has a thread of its own
            self.assertEqual([str(each.message) for each in warned], [])


class Fork1InTransactionTests(Fork, TestCase):
    def test_a_fork_after_rows(self) -> None:
        Invoice.objects.create(order=Order.objects.create())
        self.assert_no_warning()

    def test_a_fork_in_a_later_test(self) -> None:
        self.assert_no_warning()


class Fork2CommittedTests(Fork, TransactionTestCase):
    def test_a_fork_after_rows(self) -> None:
        Invoice.objects.create(order=Order.objects.create())
        self.assert_no_warning()


class Fork3WithoutDatabaseTests(Fork, SimpleTestCase):
    def test_a_fork_after_ids(self) -> None:
        next_id()
        segments["shop.country"].next_ids(5000)
        self.assert_no_warning()

    def test_a_fork_in_a_later_test(self) -> None:
        self.assert_no_warning()
