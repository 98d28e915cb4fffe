"""Who may see, take and change what."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

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
)
