"""Who may see, take and change what."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

NAMES = "tests/test_exact_names.py"
LOOKUPS = "tests/admin/test_url_lookups.py"

BREAKS = (
    Break(
        "a URL reads a column that no page shows",
        "hazard 73",
        "django_idgen/admin/base.py",
        "        return any(_is_of(lookup, each) for each in offered) and super().lookup_allowed(",
        "        return super().lookup_allowed(",
        (f"{LOOKUPS}::test_only_what_the_list_offers_can_be_asked_for",),
    ),
    Break(
        "a list is sorted by the tokens of leases",
        "hazard 73",
        "django_idgen/admin/leases.py",
        '        ordering=Case(When(token="", then=0), default=1, output_field=IntegerField()),',
        '        ordering="token",',
        (f"{LOOKUPS}::test_sorting_by_state_says_nothing_of_the_tokens",),
    ),
    Break(
        "a collation decides whom a name means",
        "hazard 76",
        "django_idgen/models.py",
        '        return f"({lhs} = {rhs} AND {exactly})", [*lhs_params, *rhs_params] * 2',
        '        return f"({lhs} = {rhs})", [*lhs_params, *rhs_params]',
        (f"{NAMES}::test_a_tag_alike_is_refused_and_moves_none",),
    ),
    Break(
        "a namespace shares the marks of one that looks alike",
        "hazard 76",
        "django_idgen/leases/namespace_record.py",
        "            if why := why_alike(record, self.alias):",
        "            if why := not record:",
        (f"{NAMES}::test_a_namespace_alike_is_refused",),
    ),
)
