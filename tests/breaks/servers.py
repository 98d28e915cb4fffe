"""Leases in the tables of a database server, and its transactions."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

SERVER = "django_idgen/leases/server.py"
OPENING = "django_idgen/leases/namespace_record.py"
LENDER = "django_idgen/leases/server_lender.py"
LEDGER = "django_idgen/leases/server_ledger.py"
VENDOR = "django_idgen/db/dialects.py"
TRANSACTIONS = "django_idgen/db/transactions.py"
CONTRACT = "tests/contracts/test_server.py::TestServerLeases"
LIFE = "tests/server_leases/test_life.py"
LOSSES = "tests/server_leases/test_losses.py"
FAULTS = "tests/server_leases/test_faults.py"

BREAKS = (
    Break(
        "on a server another's token renews and releases",
        "L2, L3, hazard 1",
        SERVER,
        "rows = rows.filter(pk=key, token=lease.token, generation=lease.generation)",
        'rows = rows.filter(pk=key, generation=lease.generation).exclude(token="")',
        (f"{CONTRACT}::test_another_start_or_token_is_another_lease",),
    ),
    Break(
        "on a server a lease with another start renews and releases",
        "L2, L3, hazard 69",
        SERVER,
        "return rows.filter(start=lease.start)",
        "return rows",
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
        SERVER,
        "            highest=record.highest_until,\n",
        "",
        (f"{CONTRACT}::test_a_tick_that_no_holder_came_to_is_refused",),
    ),
    Break(
        "on a server a record that may lag is taken for a whole one",
        "L7, hazard 49",
        OPENING,
        "return bool(known) and record.server == known",
        "return True",
        (f"{LOSSES}::test_a_loss_opens_a_new_generation[postgres-forget_server]",),
    ),
    Break(
        "on a server a lease of an earlier generation renews",
        "L6, hazard 52",
        SERVER,
        "if not lease.token or lease.generation != generation:",
        "if not lease.token:",
        (f"{LOSSES}::test_a_loss_voids_older_tokens",),
    ),
    Break(
        "on a server a lease of an earlier generation is released",
        "L3, L6",
        SERVER,
        "if not lease.token or not self._opening.records(lease.generation).exists():",
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
        "on a server a scheduler revives what has lapsed",
        "L2",
        SERVER,
        "filter(generation=record.generation, until__gt=now)",
        "filter(generation=record.generation)",
        (f"{CONTRACT}::test_a_scheduler_revives_nothing",),
    ),
    Break(
        "on a server a scheduler renews an earlier generation",
        "L6",
        SERVER,
        "filter(generation=record.generation, until__gt=now)",
        "filter(until__gt=now)",
        (f"{LOSSES}::test_a_scheduler_does_not_renew_what_a_loss_has_voided",),
    ),
    Break(
        "a row that was deleted looks as if never lent",
        "L7",
        SERVER,
        "if row is None and not opened.thorough and rows.count() < record.workers_made:",
        "if row is None and not opened.thorough and rows.count() < 0:",
        (f"{LOSSES}::test_one_row_deleted_among_many_is_noticed",),
    ),
    Break(
        "the record does not follow the highest window",
        "L7, hazard 49",
        SERVER,
        "highest_until=max(record.highest_until, until), workers_made=record.workers_made",
        "highest_until=record.highest_until, workers_made=record.workers_made",
        (f"{LOSSES}::test_rows_deleted_after_the_clock_went_back",),
    ),
    Break(
        "the namespace is not locked",
        "I1, hazard 44",
        OPENING,
        "self._records().select_for_update().filter(pk=self.namespace.name).first()",
        "self._records().filter(pk=self.namespace.name).first()",
        (f"{FAULTS}::test_windows_stay_disjoint_while_many_come_and_go",),
    ),
    Break(
        "another server that took over goes unnoticed",
        "L7, hazard 34",
        OPENING,
        "            or bool(server and record.server != server)\n"
        "            or record.largest_window",
        "            or record.largest_window",
        (f"{LOSSES}::test_a_loss_opens_a_new_generation[postgres-forget_server]",),
    ),
    Break(
        "another server that took over is no loss",
        "L7, hazard 34",
        OPENING,
        "                or bool(server and record.server and record.server != server)\n",
        "",
        (f"{LOSSES}::test_a_loss_opens_a_new_generation[postgres-forget_server]",),
    ),
    Break(
        "a record of another installation is believed",
        "L7, L8",
        OPENING,
        "            or record.installation != installation.identity\n            or bool",
        "            or bool",
        (f"{LOSSES}::test_an_installation_that_others_made_anew_is_a_loss",),
    ),
    Break(
        "an installation that was made anew counts as new",
        "L7",
        OPENING,
        "lost = count > 0 or name in memory or ANY in memory",
        "lost = count > 0 or name in memory",
        (f"{LOSSES}::test_a_namespace_opened_after_the_installation_was_lost_is_fenced",),
    ),
    Break(
        "a record that was deleted is made as new",
        "L6, L7",
        OPENING,
        "lost = count > 0 or name in memory or ANY in memory",
        "lost = count > 0 or ANY in memory",
        (f"{LOSSES}::test_a_loss_opens_a_new_generation[postgres-forget_namespace]",),
    ),
    Break(
        "worker rows without a record are no loss",
        "L7",
        OPENING,
        "lost = count > 0 or name in memory or ANY in memory",
        "lost = name in memory or ANY in memory",
        (f"{LOSSES}::test_worker_rows_alone_tell_of_a_loss",),
    ),
    Break(
        "the fence forgets the highest mark",
        "L7, hazard 49",
        OPENING,
        'fence = max(record.fence, record.highest_until, left["until"])',
        'fence = max(record.fence, left["until"])',
        (f"{LOSSES}::test_rows_deleted_after_the_clock_went_back",),
    ),
    Break(
        "the fence forgets who ran ahead",
        "L7, hazard 49",
        OPENING,
        "now=now + ahead, fence=fence",
        "now=now, fence=fence",
        (f"{LOSSES}::test_the_fence_reckons_with_those_who_were_ahead_before",),
    ),
    Break(
        "a longer window is used before it is written down",
        "L7",
        OPENING,
        "            or record.largest_window < self.namespace.reach_ticks\n",
        "",
        ("tests/server_leases/test_choice.py::test_a_longer_window_is_noted_before_it_is_used",),
    ),
    Break(
        "a generation that was opened has the old number",
        "L6",
        OPENING,
        'record.generation = max(record.generation, left["generation"]) + 1',
        'record.generation = max(record.generation, left["generation"])',
        (f"{LOSSES}::test_a_loss_voids_older_tokens",),
    ),
    Break(
        "on a server other settings are let in",
        "L8, I8",
        OPENING,
        "    if stored == configured:\n        return",
        "    if stored or configured:\n        return",
        ("tests/server_leases/test_choice.py::test_other_settings_are_refused",),
    ),
    Break(
        "a promotion of PostgreSQL keeps the identity",
        "L7, hazard 59",
        VENDOR,
        'f"{_POSTGRESQL_SYSTEM} || {_POSTGRESQL_TIMELINE}", _POSTGRESQL_TIMELINE',
        "_POSTGRESQL_SYSTEM, _POSTGRESQL_TIMELINE",
        ("tests/test_vendor.py::test_postgresql_is_told_by_system_and_timeline",),
    ),
    Break(
        "MariaDB's clock is that of the session's zone",
        "hazard 65",
        VENDOR,
        "UTC_TIMESTAMP(6)",
        "NOW(6)",
        ("tests/test_vendor.py::test_the_clock_is_the_same_in_every_time_zone",),
    ),
    Break(
        "a registry goes by its client's clock",
        "hazard 12",
        VENDOR,
        "wall_ns() // 1000 if sql is None else int(_scalar(connection, sql))",
        "wall_ns() // 1000",
        ("tests/test_client_clocks.py::test_the_servers_clock_decides",),
    ),
    Break(
        "a promotion of MariaDB keeps the identity",
        "L7, hazard 59",
        VENDOR,
        '_MARIADB_IDENTITY = ("@@server_uid", ',
        '_MARIADB_IDENTITY = ("@@version", ',
        ("tests/failover/test_failover.py::test_a_promoted_replica_of_mariadb",),
    ),
    Break(
        "a commit is not waited for",
        "L7",
        VENDOR,
        "SET LOCAL synchronous_commit = on;",
        "",
        ("tests/test_vendor.py::test_the_transaction_is_durable_and_impatient_on_postgresql",),
    ),
    Break(
        "a transaction sees what was committed before its lock only",
        "I1, hazard 44",
        VENDOR,
        "= 'READ-COMMITTED'",
        "= 'REPEATABLE-READ'",
        ("tests/test_vendor.py::test_each_statement_sees_what_others_have_committed",),
    ),
    Break(
        "a transaction is run again though it may be committed",
        "L4, hazard 53",
        TRANSACTIONS,
        "                if attempt.reached_commit:\n                    raise\n",
        "",
        ("tests/test_server_source_faults.py::test_nothing_is_repeated_from_the_commit_on",),
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
            "tests/test_server_source_faults.py::test_a_rollback_gives_nothing_back",
            f"{FAULTS}::test_a_grant_outlives_the_callers_rollback",
        ),
    ),
    Break(
        "a charter's reach is used before it is written down",
        "L6, L7",
        LENDER,
        "if record.largest_window < reach:",
        "if record.largest_window < 0:",
        (
            "tests/redis_leases/test_faults.py::"
            "test_how_far_redis_may_lend_is_known_without_the_record",
        ),
    ),
    Break(
        "a fence laid by hand keeps the old generation",
        "L6, I8",
        LEDGER,
        "record.generation += 1",
        "record.generation += 0",
        (f"{LOSSES}::test_a_ledger_that_was_rewritten_voids_older_tokens",),
    ),
)
