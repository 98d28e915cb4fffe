"""Leases in the tables of a database server, and its transactions."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

SERVER = "django_idgen/leases/server.py"
BOOK = "django_idgen/core/book.py"
VENDOR = "django_idgen/db/dialects.py"
TRANSACTIONS = "django_idgen/db/transactions.py"
CONTRACT = "tests/contracts/test_server.py::TestServerLeases"
LOSSES = "tests/leases/server/test_losses.py"
FAULTS = "tests/leases/server/test_faults.py"

BREAKS = (
    Break(
        "on a server another's token releases",
        "L2, L3, hazard 1",
        SERVER,
        "filter(token=lease.token, generation=lease.generation)",
        'filter(generation=lease.generation).exclude(token="")',
        (f"{CONTRACT}::test_another_start_or_token_is_another_lease",),
    ),
    Break(
        "on a server a lease with another start is released",
        "L2, L3, hazard 69",
        SERVER,
        "rows.filter(start=lease.start).update(",
        "rows.update(",
        (f"{CONTRACT}::test_another_start_or_token_is_another_lease",),
    ),
    Break(
        "on a server a release moves the mark past the stored window",
        "L3, hazard 69",
        SERVER,
        'until = Least(F("until"), used)',
        "until = used",
        (f"{CONTRACT}::test_a_release_leaves_its_mark_inside_the_window",),
    ),
    Break(
        "on a server a release counts from what was sent",
        "L3, hazard 69",
        SERVER,
        'used = Greatest(F("start"), Value(loaded + 1, BigIntegerField()))',
        "used = Value(loaded + 1, BigIntegerField())",
        (f"{CONTRACT}::test_a_release_leaves_no_mark_before_its_window",),
    ),
    Break(
        "on a server a holder that was lent more is refused",
        "L1, hazard 71",
        BOOK,
        "        highest=record.highest_until,\n",
        "",
        (f"{CONTRACT}::test_a_tick_that_no_holder_came_to_is_refused",),
    ),
    Break(
        "on a server a record that may lag is taken for a whole one",
        "L7, hazard 49",
        BOOK,
        'known.installation == book.installation and known.server == book.server != ""',
        "True",
        (f"{LOSSES}::test_a_loss_opens_a_new_generation[postgres-forget_server]",),
    ),
    Break(
        "on a server a lease of an earlier generation renews",
        "L6, hazard 52",
        BOOK,
        "        lease.generation,\n        lease.generation,\n    )",
        "        mark.generation,\n        record.generation,\n    )",
        (f"{LOSSES}::test_a_loss_voids_older_tokens",),
    ),
    Break(
        "on a server a lease of an earlier generation is released",
        "L3, L6",
        SERVER,
        "if not is_any(self._records().filter(generation=lease.generation)):",
        "if not lease.token:",
        (f"{LOSSES}::test_a_loss_voids_older_tokens",),
    ),
    Break(
        "on a server a scheduler lowers an end",
        "L2, hazard 50",
        SERVER,
        'count = seen.update(until=Greatest(F("until"), end))',
        "count = seen.update(until=end)",
        (f"{CONTRACT}::test_a_scheduler_never_lowers_an_end",),
    ),
    Break(
        "on a server a scheduler revives what has expired",
        "L2",
        SERVER,
        "filter(generation=generation, until__gt=now)",
        "filter(generation=generation)",
        (f"{CONTRACT}::test_a_scheduler_revives_nothing",),
    ),
    Break(
        "on a server a scheduler renews an earlier generation",
        "L6",
        SERVER,
        "filter(generation=generation, until__gt=now)",
        "filter(until__gt=now)",
        (f"{LOSSES}::test_a_scheduler_does_not_renew_what_a_loss_has_voided",),
    ),
    Break(
        "a row that was deleted looks as if never lent",
        "L7",
        BOOK,
        "not book.thorough and book.count() < record.workers_made:",
        "not book.thorough and book.count() < 0:",
        (f"{LOSSES}::test_one_row_deleted_among_many_is_noticed",),
    ),
    Break(
        "the record does not follow the highest window",
        "L7, hazard 49",
        BOOK,
        "return replace(record, highest_until=max(record.highest_until, until))",
        "return record",
        (f"{CONTRACT}::test_rows_deleted_after_the_clock_went_back",),
    ),
    Break(
        "the namespace is not locked",
        "I1, hazard 44",
        SERVER,
        "self._read(self._records().select_for_update())",
        "self._read(self._records())",
        (f"{CONTRACT}::test_windows_never_overlap_under_many_acquirers",),
    ),
    Break(
        "another server that took over goes unnoticed",
        "L7, hazard 34",
        BOOK,
        "        or bool(book.server and record.server != book.server)\n",
        "",
        (f"{LOSSES}::test_a_loss_opens_a_new_generation[postgres-forget_server]",),
    ),
    Break(
        "another server that took over is no loss",
        "L7, hazard 34",
        BOOK,
        "        or bool(server and found.server and found.server != server)  # it may lack the last"
        " writes\n",
        "",
        (f"{LOSSES}::test_a_loss_opens_a_new_generation[postgres-forget_server]",),
    ),
    Break(
        "a record of another installation is believed",
        "L7, L8",
        BOOK,
        "        record.installation != book.installation\n        or bool",
        "        bool",
        (f"{LOSSES}::test_an_installation_that_others_made_anew_is_a_loss",),
    ),
    Break(
        "an installation that was made anew counts as new",
        "L7",
        SERVER,
        "return self._namespace in memory or ANY in memory",
        "return self._namespace in memory",
        (f"{LOSSES}::test_a_namespace_opened_after_the_installation_was_lost_is_fenced",),
    ),
    Break(
        "a record that was deleted is made as new",
        "L6, L7",
        SERVER,
        "return self._namespace in memory or ANY in memory",
        "return ANY in memory",
        (f"{LOSSES}::test_a_loss_opens_a_new_generation[postgres-forget_namespace]",),
    ),
    Break(
        "worker rows without a record are no loss",
        "L7",
        BOOK,
        "return count > 0 or book.was_opened()",
        "return book.was_opened()",
        (f"{LOSSES}::test_worker_rows_alone_tell_of_a_loss",),
    ),
    Break(
        "the fence forgets the highest mark",
        "L7, hazard 49",
        BOOK,
        "max(known.fence, known.highest_until, book.highest_until())",
        "max(known.fence, book.highest_until())",
        (f"{CONTRACT}::test_rows_deleted_after_the_clock_went_back",),
    ),
    Break(
        "the fence forgets who ran ahead",
        "L7, hazard 49",
        BOOK,
        "now=_now(book, namespace) + ahead,",
        "now=_now(book, namespace),",
        (f"{LOSSES}::test_the_fence_reckons_with_those_who_were_ahead_before",),
    ),
    Break(
        "a longer window is used before it is written down",
        "L7",
        BOOK,
        "        or record.largest_window < namespace.reach_ticks\n",
        "",
        ("tests/leases/server/test_choice.py::test_a_longer_window_is_noted_before_it_is_used",),
    ),
    Break(
        "a generation that was opened has the old number",
        "L6",
        SERVER,
        "return max(after, int(left)) + 1",
        "return max(after, int(left), 1)",
        (f"{LOSSES}::test_a_loss_voids_older_tokens",),
    ),
    Break(
        "on a server other settings are let in",
        "L8, I8",
        BOOK,
        "if not stored or stored == configured:",
        "if stored or configured:",
        ("tests/leases/server/test_choice.py::test_other_settings_are_refused",),
    ),
    Break(
        "a promotion of PostgreSQL keeps the identity",
        "L7, hazard 59",
        VENDOR,
        'f"{_POSTGRESQL_SYSTEM} || {_POSTGRESQL_TIMELINE}", _POSTGRESQL_TIMELINE',
        "_POSTGRESQL_SYSTEM, _POSTGRESQL_TIMELINE",
        ("tests/db/test_vendor.py::test_postgresql_is_told_by_system_and_timeline",),
    ),
    Break(
        "MariaDB's clock is that of the session's zone",
        "hazard 65",
        VENDOR,
        "UTC_TIMESTAMP(6)",
        "NOW(6)",
        ("tests/db/test_vendor.py::test_the_clock_is_the_same_in_every_time_zone",),
    ),
    Break(
        "a registry goes by its client's clock",
        "hazard 12",
        VENDOR,
        "wall_ns() // 1000 if sql is None else int(_scalar(connection, sql))",
        "wall_ns() // 1000",
        ("tests/leases/test_client_clocks.py::test_the_servers_clock_decides",),
    ),
    Break(
        "a promotion of MariaDB keeps the identity",
        "L7, hazard 59",
        VENDOR,
        '_MARIADB_IDENTITY = ("@@server_uid", ',
        '_MARIADB_IDENTITY = ("@@version", ',
        ("tests/faults/failover/test_failover.py::test_a_promoted_replica_of_mariadb",),
        late="it needs two servers of MariaDB",
    ),
    Break(
        "a commit is not waited for",
        "L7",
        VENDOR,
        "SET LOCAL synchronous_commit = on;",
        "",
        ("tests/db/test_vendor.py::test_the_transaction_is_durable_and_impatient_on_postgresql",),
    ),
    Break(
        "a transaction sees what was committed before its lock only",
        "I1, hazard 44",
        VENDOR,
        "= 'READ-COMMITTED'",
        "= 'REPEATABLE-READ'",
        ("tests/db/test_vendor.py::test_each_statement_sees_what_others_have_committed",),
    ),
    Break(
        "a transaction is run again though it may be committed",
        "L4, hazard 53",
        TRANSACTIONS,
        "                if committing:  # the transaction may have taken effect\n"
        "                    raise\n",
        "",
        (
            "tests/sources/test_server_source_faults.py::test_nothing_is_repeated_from_the_commit_on",
        ),
    ),
    Break(
        "a grant rides in the caller's transaction",
        "I4, hazard 31",
        "django_idgen/db/connection.py",
        "        if self.loader.inside:\n            return self.call(job)\n        future",
        # Its own guard, of durable blocks, would notice that.
        "        for block in connections[self.alias].atomic_blocks:\n"
        "            block._from_testcase = True\n"
        "        return job(connections[self.alias])\n        future",
        (
            "tests/sources/test_server_source_faults.py::test_a_rollback_gives_nothing_back",
            f"{FAULTS}::test_a_grant_outlives_the_callers_rollback",
        ),
    ),
    Break(
        "a sub-lease's reach is used before it is written down",
        "L6, L7",
        BOOK,
        "if reach > record.largest_window and not book.thorough:",
        "if reach < 0:",
        (
            "tests/leases/redis/test_faults.py::"
            "test_how_far_redis_may_lend_is_known_without_the_record",
        ),
    ),
    Break(
        "a fence laid by hand keeps the old generation",
        "L6, I8",
        BOOK,
        "generation=book.next_generation(record.generation),",
        "generation=record.generation,",
        (f"{LOSSES}::test_a_book_that_was_rewritten_voids_older_tokens",),
    ),
)
