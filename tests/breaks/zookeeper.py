"""Leases in ZooKeeper: the node, and what the database lends to it."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

MODULE = "django_idgen/leases/zookeeper.py"
HISTORIES = "tests/simulation/test_zookeeper_histories.py"
LOSSES = "tests/leases/zookeeper/test_losses.py"

BREAKS = (
    Break(
        "the node is written whatever others have made of it",
        "I1, L1",
        MODULE,
        "steps.set_data(path, data, version)",
        "steps.set_data(path, data, -1)",
        (f"{LOSSES}::test_a_node_that_changed_meanwhile_is_read_again",),
    ),
    Break(
        "ZooKeeper lends past what the database has lent to it",
        "L6",
        MODULE,
        "book.ceiling, book.cuts = seen.ceiling, call.failure",
        "book.cuts = call.failure",
        (f"{LOSSES}::TestLosses::test_the_database_may_be_away_for_a_stride",),
    ),
    Break(
        "an ensemble that was set back goes on where it stands",
        "L6",
        MODULE,
        "book.is_whole and book.leader == stamp.leader and",
        "book.is_whole and",
        (f"{LOSSES}::test_a_leader_that_is_cut_off_with_a_holder",),
    ),
    Break(
        "a mark that is gone from the node is not missed",
        "L6",
        MODULE,
        "book.is_whole and book.leader == stamp.leader and",
        "book.leader == stamp.leader and",
        (f"{LOSSES}::TestLosses::test_what_was_forgotten_is_not_lent_again",),
    ),
    Break(
        "a window is cut short before the database was asked for more",
        "L6",
        "django_idgen/core/book.py",
        "if until <= start or (_is_cut(namespace, start, until) and not book.cuts):",
        "if until <= start:",
        (f"{LOSSES}::test_no_lease_is_shorter_than_a_window",),
    ),
    Break(
        "after a loss ZooKeeper goes on with the sub-lease that it had",
        "L6",
        MODULE,
        "life = SubLease(installation, 0, 0, 0, incarnation=new_token())",
        'life = SubLease(installation, 0, 0, 0, incarnation="same")',
        (f"{HISTORIES}::TestZooKeeperHistories",),
    ),
    Break(
        "a request that was late is written in another life",
        "I1, L4",
        MODULE,
        "steps.create(life) if begins else steps.check(life, -1)",
        "steps.create(life) if begins else None",
        (f"{HISTORIES}::test_a_request_that_arrives_in_another_life_changes_nothing",),
    ),
    Break(
        "a request waits for a connection to return",
        "L4",
        MODULE,
        "if live.wait(timeout / 2) and client.connected:",
        "if live.wait(timeout / 2):",
        (f"{LOSSES}::test_nothing_is_sent_when_a_connection_returns",),
    ),
    Break(
        "a child goes on with its parent's session",
        "L9",
        MODULE,
        "        if self._pid != os.getpid():\n            self.start_over()",
        "        if False:\n            self.start_over()",
        (f"{LOSSES}::test_a_fork_without_hooks_has_a_session_of_its_own",),
    ),
    Break(
        "a late answer lowers the ceiling",
        "L6",
        MODULE,
        "given = replace(given, ceiling=max(given.ceiling, known.ceiling))",
        "pass",
        (f"{LOSSES}::test_a_late_answer_of_the_database_lowers_no_ceiling",),
    ),
)
