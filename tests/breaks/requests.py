"""What comes over HTTP: how much of it is read, who is counted, and what is refused before."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

REDACTION = "django_idgen/contrib/old_servers/redaction.py"
BASE = "django_idgen/rest/base.py"
AUTHENTICATION = "django_idgen/rest/authentication.py"
MOUNTING = "django_idgen/contrib/old_servers/mounting.py"
COSID = "django_idgen/contrib/old_servers/cosid.py"
LEASES = "django_idgen/rest/lending.py"
HIDDEN = "tests/contrib/old_servers/test_redaction.py"
BAD = "tests/rest/ids/test_ids.py"
OFTEN = "tests/rest/ids/test_callers.py"
MOUNTED = "tests/contrib/old_servers/test_mounting.py"
READY = "tests/ops/test_readiness.py"

BREAKS = (
    Break(
        "a header of a stranger's is gone through by an expression",
        "hazard 74",
        REDACTION,
        '        meta.pop("HTTP_REFERER", None)\n',
        '        meta["HTTP_REFERER"] = redacted(meta.get("HTTP_REFERER"))\n',
        (f"{HIDDEN}::test_a_hostile_header_holds_up_nothing",),
    ),
    Break(
        "a body of any size is read",
        "hazard 75",
        BASE,
        "int(length) > (MOST_BODY if most is None else min(most, MOST_BODY))",
        "(most is not None and int(length) > most)",
        (f"{BAD}::test_a_body_has_64_kb_at_most",),
    ),
    Break(
        "an answer names each unknown field there is",
        "hazard 75",
        "django_idgen/rest/serializers.py",
        "for name in unknown[:MOST_NAMED]}",
        "for name in unknown}",
        (f"{BAD}::test_few_of_many_wrong_names_are_told",),
    ),
    Break(
        "a secret that no header holds stands in an error page",
        "hazard 78",
        MOUNTING,
        "    if not secret.isascii():",
        "    if not secret:",
        (f"{HIDDEN}::test_a_secret_that_no_header_holds_is_refused",),
    ),
    Break(
        "who guesses secrets is another one by saying so",
        "hazard 71",
        AUTHENTICATION,
        "        if api_settings.NUM_PROXIES is None:",
        "        if api_settings.NUM_PROXIES == 0:",
        (f"{OFTEN}::test_who_guesses_is_not_another_one_by_saying_so",),
    ),
    Break(
        "who was known waits for a stranger after a restart",
        "a limit that refuses an honest holder",
        AUTHENTICATION,
        "    if not is_known and not _ask_cache(cache.get, key):",
        "    if not is_known:",
        (f"{OFTEN}::test_who_was_known_comes_in_after_a_restart",),
    ),
    Break(
        "who keeps a machine id is refused by a throttle",
        "a limit that refuses an honest holder",
        COSID,
        "        caller = self.door.caller(request, counted=new)",
        "        caller = self.door.caller(request)",
        (f"{MOUNTED}::test_who_keeps_a_machine_id_is_not_counted",),
    ),
    Break(
        "who renews a lease is refused by a throttle of the project's",
        "a limit that refuses an honest holder",
        LEASES,
        '        if self.action in ("terms", "borrow"):\n',
        "        if self.action:\n",
        ("tests/rest/lending/test_leases.py::test_throttles_count_who_borrows_and_not_who_renews",),
    ),
    Break(
        "an empty floor in a form is a missing one",
        "I2, hazard 61",
        BASE,
        "        given = kind(data=_plain(asked))\n",
        "        given = kind(data=asked)\n",
        (
            "tests/rest/lending/test_segments.py"
            "::test_an_empty_value_in_a_form_is_no_missing_one[sqlite]",
        ),
    ),
    Break(
        "readiness asks nothing of a generator's own source",
        "an outage that ids survive",
        "django_idgen/ops/health.py",
        "        of_tags = {alias: tag.source.probes() for",
        "        of_tags = {alias: {} for",
        (f"{READY}::test_the_source_of_a_generators_own_tag_is_asked",),
    ),
    Break(
        "an outage takes out a process for a generator that nobody asks any more",
        "an outage that ids survive",
        "django_idgen/ops/health.py",
        "        if keeper.seconds_unused < IDLE_AFTER:\n",
        "        if keeper.seconds_unused >= 0:\n",
        (f"{READY}::test_a_generator_that_was_not_used_for_15_minutes_takes_no_process_out",),
    ),
)
