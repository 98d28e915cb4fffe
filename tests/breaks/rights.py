"""Who may see, take and change what."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

NAMES = "tests/db/test_exact_names.py"
ENDS = "tests/rest/tokens/test_tokens.py"
FLOORS = "tests/rest/lending/test_segments.py"
LOOKUPS = "tests/admin/test_url_lookups.py"
QUOTA = "tests/rest/lending/test_leases.py"

BREAKS = (
    Break(
        "a URL reads a column that no page shows",
        "hazard 73",
        "django_idgen/admin/base.py",
        "        return lookup in offered and ",
        "        return ",
        (f"{LOOKUPS}::test_only_what_the_list_offers_can_be_asked_for",),
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
        "django_idgen/leases/server.py",
        "        if why := why_alike(row, self._alias):",
        "        if why := not row:",
        (f"{NAMES}::test_a_namespace_alike_is_refused",),
    ),
    Break(
        "a form makes a revoked token valid again",
        "hazard 77",
        "django_idgen/admin/tokens.py",
        "        return not ended and super().has_change_permission(request, obj)",
        "        return super().has_change_permission(request, obj)",
        (f"{ENDS}::test_no_form_makes_a_revoked_token_valid_again",),
    ),
    Break(
        "a token that was read before it was revoked is saved, and valid again",
        "hazard 77",
        "django_idgen/models.py",
        '            if field.name == "expires_at"\n',
        '            if field.name == "ended"\n',
        (f"{ENDS}::test_a_form_that_was_opened_before_it_was_revoked_changes_nothing",),
    ),
    Break(
        "a date in year 9999 breaks a page",
        "hazard 77",
        "django_idgen/models.py",
        "        if end is not None and end.year not in TOLD_YEARS:",
        "        if end is not None and end.year == 0:",
        (f"{ENDS}::test_a_row_with_such_an_end_breaks_no_page_and_no_command",),
    ),
    Break(
        "who borrows and gives back in turn moves the windows of all worker ids",
        "hazard 71",
        "django_idgen/rest/clients.py",
        "    free_from = 0 if inspected.mark.token else space.skew_ticks",
        "    free_from = 0 if inspected.mark.token else space.max_ticks",
        (f"{QUOTA}::test_giving_back_moves_no_more_windows_than_holding",),
    ),
    Break(
        "a user without a right moves a tag by its segments",
        "hazard 72",
        "django_idgen/rest/authentication.py",
        "        if self.token is None and not self.has_perm(CHANGE):",
        "        if self.user is None:",
        (f"{FLOORS}::test_a_user_without_the_right_to_change_tags_takes_no_segment",),
    ),
    Break(
        "a floor moves a tag as far as a client likes",
        "hazard 72",
        "django_idgen/rest/lending.py",
        "        if floor > probe.stop + skip:",
        "        if floor > MAX_ID:",
        (f"{FLOORS}::test_beyond_the_bound_the_client_names_the_operators_command",),
    ),
    Break(
        "a bracket in a pattern names other tags",
        "DESIGN 5",
        "django_idgen/rest/tokens.py",
        '    return pattern in ("*", name) or fnmatchcase(name, pattern.translate(_LITERAL))',
        '    return pattern in ("*", name) or fnmatchcase(name, pattern)',
        ("tests/management/test_idgen_token.py::test_a_star_is_the_one_wildcard",),
    ),
    Break(
        "a CosId instance is anybody's who knows its name",
        "hazard 70",
        "django_idgen/rest/clients.py",
        "        return OLD_CLIENTS + self.label(",
        '        return OLD_CLIENTS + ("null " + ',
        ("tests/contrib/old_servers/test_cosid.py::test_an_instance_is_its_clients_alone",),
    ),
    Break(
        "one client is lent all worker ids",
        "hazard 71",
        "django_idgen/rest/clients.py",
        "    if len(left) >= most:",
        "    if len(left) >= workers:",
        (f"{QUOTA}::test_cosids_machine_ids_count_alike",),
    ),
    Break(
        "a client asks for later and later windows",
        "hazard 71",
        "django_idgen/rest/lending.py",
        "        if tick > latest:",
        "        if tick < 0:",
        (f"{QUOTA}::test_window_after_window_no_client_comes_far_past_now",),
    ),
)
