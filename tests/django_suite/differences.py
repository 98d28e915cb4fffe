"""Which of Django's tests are run, and which of them may fail with keys of ours, and why."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch

LABELS = [
    "basic",
    "bulk_create",
    "delete",
    "fixtures",
    "force_insert_update",
    "generic_relations",
    "many_to_many",
    "model_fields",
    "model_forms",
    "model_formsets",
    "model_inheritance",
    "one_to_one",
    "prefetch_related",
    "serializers",
    "transactions",
]


@dataclass(frozen=True)
class Difference:
    """Tests whose name is like ``test``, and which may fail with ``error``."""

    test: str
    error: str
    why: str
    fields: tuple[str, ...] = ("SnowflakeAutoField", "SegmentAutoField")
    databases: tuple[str, ...] = ("sqlite", "postgres")
    sometimes: bool = False
    """Whether it depends on the ids, or on time, so that it may also pass."""

    def explains(self, test: str, error: str) -> bool:
        return fnmatch(test, self.test) and self.error in error


DIFFERENCES = [
    Difference(
        "fixtures.tests.ForwardReferenceTests.test_forward_reference_m2m_natural_key",
        "fixtures.naturalkeything",
        "Rows of a many-to-many relation are made in the order of a set of ids, of which 8 comes "
        "before 7, and are read without an order.",
        sometimes=True,
    ),
    *(
        Difference(
            f"delete.tests.DeletionTests.{test}",
            'SELECT "delete_r"',
            "A receiver of post_delete that another test of Django's leaves connected lives until "
            "the garbage collector runs, and looks for a row.",
            sometimes=True,
        )
        for test in ("test_bulk", "test_large_delete_related")
    ),
    Difference(
        "bulk_create.tests.BulkCreateTests.test_explicit_batch_size_respects_max_batch_size",
        "INSERT INTO",
        "The key is one more value in each row, so fewer rows fit into one INSERT.",
        databases=("sqlite",),
    ),
    Difference(
        "bulk_create.tests.BulkCreateTests.test_ignore_conflicts_ignore",
        "is not None",
        "The key is made before the INSERT, also for a row that is then ignored; "
        "docs/fields.md says so.",
    ),
    *(
        Difference(
            test,
            "integer out of range",
            "These models keep ids in columns of 32 bits, of which the check W002 warns.",
            fields=("SnowflakeAutoField",),
            databases=("postgres",),
        )
        for test in (
            "*generic_relations.*",
            "delete.tests.OnDeleteTests.test_restrict_gfk_no_fast_delete",
            "prefetch_related.tests.CustomPrefetchTests.*",
            "prefetch_related.tests.GenericRelationTests.*",
        )
    ),
    Difference(
        "model_inheritance.tests.ModelInheritanceTests.test_custompk_m2m",
        "integer out of range",
        "The test puts an id into a key that is an IntegerField.",
        fields=("SnowflakeAutoField",),
        databases=("postgres",),
    ),
]
