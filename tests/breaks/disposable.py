"""Worker ids that are lent once."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

BOOK = "django_idgen/core/book.py"
TESTS = "tests/contracts/test_disposable.py"

BREAKS = (
    Break(
        "rows that are missing count where worker ids are lent once",
        "hazard 28",
        BOOK,
        "return not namespace.unused or (",
        "return bool(namespace) or (",
        (f"{TESTS}::test_a_holder_keeps_its_lease_though_rows_are_deleted",),
    ),
    Break(
        "after a loss worker ids are lent anew from the first",
        "hazard 28",
        BOOK,
        "0 if lost and not namespace.unused else known.workers_made",
        "0 if lost else known.workers_made",
        (f"{TESTS}::test_a_row_that_is_missing_when_all_were_used",),
    ),
    Break(
        "a record that is made again counts rows where it needs the highest",
        "hazard 28",
        BOOK,
        "    if not namespace.unused:\n        return book.count()\n",
        "    if namespace:\n        return book.count()\n",
        (f"{TESTS}::test_a_lost_record_is_made_again_above_its_rows",),
    ),
    Break(
        "a worker id that is to be used once is lent again when all were used",
        "L1",
        BOOK,
        'if namespace.unused == "only":',
        'if namespace.unused == "never":',
        (f"{TESTS}::test_no_worker_id_is_lent_twice",),
    ),
    Break(
        "with used up worker ids a window starts in the last one",
        "L1, I1",
        "django_idgen/core/lease.py",
        "start = max(now, mark.until if mark else 0, fence, not_before)",
        "start = max(now, fence, not_before)",
        (f"{TESTS}::TestRecyclingLeases::test_a_worker_id_that_is_lent_again_starts_at_its_mark",),
    ),
    Break(
        "worker ids are recycled unasked",
        "hazard 5",
        "django_idgen/leases/disposable.py",
        'unused="first" if check_flag("recycle", recycle)',
        'unused="first" if check_flag("recycle", recycle) is not None',
        (f"{TESTS}::test_an_option_says_whether_worker_ids_come_again",),
    ),
)
