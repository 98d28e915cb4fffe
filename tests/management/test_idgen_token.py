"""``manage.py idgen_token``, and the functions that make, replace and revoke tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from django_idgen.contrib.old_servers.mounting import Tags
from django_idgen.models import AccessToken, LeafAlloc
from django_idgen.rest.authentication import TokenCache
from django_idgen.rest.tags import UnknownTag
from django_idgen.rest.tokens import PREFIX, digest_of, find_token, living_tokens, make_token

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> tuple[str, str]:
    """What the command writes to its two outputs."""
    out, err = StringIO(), StringIO()
    call_command("idgen_token", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def works(secret: str) -> bool:
    return find_token(secret.strip()) is not None


def test_the_secret_of_a_new_token_is_all_of_the_standard_output() -> None:
    """So that a script can keep it; the words go elsewhere, without it."""
    tags = ("--tags", "orders", "--tags", "inv*")  # as good as "--tags orders inv*"
    out, err = run("create", "shop", *tags, "--generators", "default")
    (secret,) = out.splitlines()
    assert secret.startswith(PREFIX)
    assert len(secret) == 49
    assert secret not in err
    assert "'shop'" in err
    token = AccessToken.objects.get()
    assert (token.name, token.tags, token.generators) == ("shop", "orders\ninv*", "default")
    assert (token.leases, token.expires_at, token.digest) == ("", None, digest_of(secret))
    assert find_token(secret).pk == token.pk  # type: ignore[union-attr]


def test_it_expires_when_told() -> None:
    """Units are those of every day."""
    units = {"90s": 90, "30m": 1800, "12h": 43200, "7d": 604800, "4w": 2419200}
    for text, seconds in units.items():
        run("create", "shop", "--tags", "a", "--expires", text)
        expires = AccessToken.objects.latest("pk").expires_at
        assert expires is not None
        assert abs((expires - datetime.now(UTC)).total_seconds() - seconds) < 60


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_a_project_without_time_zones_has_tokens_that_end(zone: str, settings: Any) -> None:
    """With ``USE_TZ = False`` they work until told, are replaced and revoked, and listed so."""
    settings.USE_TZ, settings.TIME_ZONE = False, zone
    first, _ = run("create", "shop", "--tags", "a", "--expires", "1h")
    assert works(first)
    assert TokenCache().get(first.strip()) is not None
    second, _ = run("rotate", "shop", "--overlap", "10m")
    assert works(first)
    assert works(second)
    AccessToken.objects.filter(digest=digest_of(first.strip())).update(expires_at=timezone.now())
    assert not works(first)
    assert [line.split("  ")[3].split()[0] for line in run("list")[0].splitlines()] == [
        "ended",
        "expires",
    ]
    run("revoke", "shop")
    assert not works(second)


NOT_MADE: list[tuple[tuple[str, ...], str]] = [
    (("shop",), "without rights is useless"),
    (("", "--tags", "a"), "name"),
    (("x" * 101, "--tags", "a"), "name"),
    (("shop\x00", "--tags", "a"), "name"),
    (("shop", "--tags", ""), "'' is not a pattern"),
    (("shop", "--tags", "a\nb"), "is not a pattern"),
    (("shop", "--tags", "a\u2028*"), "is not a pattern"),
    (("shop", "--leases", "a\x0b*"), "is not a pattern"),
    (("shop", "--tags", "x" * 129), "128"),
    (("shop", "--leases", " a"), "can't be matched"),
    *(
        (("shop", "--tags", "a", f"--expires={text}"), "give a number and s, m, h, d or w")
        for text in (
            "",
            "7",
            "d",
            "-1d",
            "1.5h",
            "1y",
            "1 d",
            "999999999w",
            "٧d",
            "1e9s",
            "d7",
            "0x1d",
        )
    ),
]


def test_what_can_not_be_made_is_said() -> None:
    """With what would do; and it is not made."""
    for arguments, words in NOT_MADE:
        with pytest.raises(CommandError, match=words):
            run("create", *arguments)
    assert not AccessToken.objects.exists()


# --- replacing -----------------------------------------------------------------------


def test_replacing_leaves_no_pause() -> None:
    """Both work for the overlap; the new one has the rights of the former."""
    former, _ = run("create", "shop", "--tags", "orders", "--leases", "default")
    new, err = run("rotate", "shop", "--overlap", "2h")
    assert new != former
    assert works(former)
    assert works(new)
    assert "work until" in err
    last, first = AccessToken.objects.order_by("-pk")
    assert (last.tags, last.leases, last.expires_at) == ("orders", "default", None)
    assert first.expires_at is not None
    assert timedelta(hours=1) < first.expires_at - datetime.now(UTC) <= timedelta(hours=2)


def test_replacing_without_an_overlap_ends_the_former_at_once() -> None:
    """``--overlap 0s``, after a leak."""
    former, _ = run("create", "shop", "--tags", "orders")
    new, _ = run("rotate", "shop", "--overlap", "0s")
    assert not works(former)
    assert works(new)


def test_replacing_never_makes_a_token_live_longer() -> None:
    """One that ends within the overlap ends when it did; the new one lives as long as it was to."""
    soon = datetime.now(UTC) + timedelta(minutes=5)
    make_token("shop", tags=["a"], expires_at=soon)
    run("rotate", "shop", "--overlap", "1h")
    assert AccessToken.objects.order_by("pk")[0].expires_at == soon
    run("create", "lab", "--tags", "a", "--expires", "90d")
    run("rotate", "lab")
    ends = AccessToken.objects.latest("pk").expires_at
    assert ends is not None
    assert abs(ends - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=5)


def test_tokens_of_one_name_with_other_rights_are_not_replaced_by_one() -> None:
    """It would have the rights of one of them and end them all: one is named by its id."""
    one, _ = run("create", "billing", "--tags", "shop.*", "--generators", "default")
    two, _ = run("create", "billing", "--tags", "orders")
    keys = list(AccessToken.objects.order_by("pk").values_list("pk", flat=True))
    with pytest.raises(CommandError, match=rf"different rights: {keys[0]}, {keys[1]}\. .*--id ID"):
        run("rotate", "billing")
    assert AccessToken.objects.count() == 2
    new, err = run("rotate", "--id", str(keys[0]), "--overlap", "0s")
    assert "of 'billing' with these rights work until" in err
    assert AccessToken.objects.latest("pk").tags == "shop.*"
    assert [works(each) for each in (one, two, new)] == [False, True, True]
    with pytest.raises(CommandError, match=f"no token {keys[0]} that works"):
        run("rotate", "--id", str(keys[0]))


def test_what_there_is_not_can_not_be_replaced() -> None:
    """The names that there are, and what makes one, are told."""
    run("create", "lab", "--tags", "a")
    with pytest.raises(CommandError, match=r"'shop' has no token that works.*'lab'.*create"):
        run("rotate", "shop")
    run("revoke", "lab")
    with pytest.raises(CommandError, match="There are none"):
        run("rotate", "lab")


# --- revoking, and showing ------------------------------------------------------------


def test_revoking_ends_all_of_a_client_or_one() -> None:
    """From now on; and says how long processes may not know of it."""
    one, _ = run("create", "shop", "--tags", "a")
    two, _ = run("create", "shop", "--tags", "a")
    other, _ = run("create", "lab", "--tags", "a")
    out, _ = run("revoke", "--id", str(AccessToken.objects.order_by("pk")[0].pk))
    assert out.startswith("1 revoked.")
    assert "within 60 s" in out
    assert [works(each) for each in (one, two, other)] == [False, True, True]
    assert run("revoke", "shop")[0].startswith("1 revoked.")
    assert [works(each) for each in (one, two, other)] == [False, False, True]
    assert run("revoke", "shop")[0].startswith("There is nothing to do")


def test_what_there_is_not_can_not_be_revoked() -> None:
    """It is said, with the way to see what there is."""
    for arguments in (("shop",), ("--id", "7"), ("--id", "x"), (), ("a", "--id", "1")):
        with pytest.raises(CommandError):
            run("revoke", *arguments)


def test_the_list_shows_no_secret() -> None:
    """But its end, what it may, and until when."""
    secret = run("create", "shop", "--tags", "orders", "inv*")[0].strip()
    run("create", "lab", "--generators", "*", "--expires", "7d")
    run("revoke", "lab")
    out, _ = run("list")
    lab, shop = out.splitlines()
    assert f"…{secret[-4:]}" in shop
    assert secret[:-4] not in out
    assert "shop" in shop
    assert "tags: orders, inv*" in shop
    assert "never expires" in shop
    assert "ended" in lab


@pytest.mark.django_db(transaction=True)
def test_a_missing_table_is_told_with_the_way_out() -> None:
    """``migrate``, for each of the actions."""
    with connection.schema_editor() as editor:
        editor.delete_model(AccessToken)
    try:
        for arguments in ("list", "rotate a", "revoke a", "create a --tags a"):
            with pytest.raises(CommandError, match=r"run 'manage\.py migrate django_idgen'"):
                run(*arguments.split())
    finally:
        with connection.schema_editor() as editor:
            editor.create_model(AccessToken)


def test_a_wrong_pattern_in_code_is_a_validation_error() -> None:
    """As everywhere in Django."""
    for wrong in ("", "a\rb", " a", "a\x00"):
        with pytest.raises(ValidationError):
            make_token("shop", tags=[wrong])


def test_living_tokens_are_those_that_are_not_refused() -> None:
    """At the very moment of its end a token is refused."""
    end = datetime.now(UTC) + timedelta(hours=1)
    token, _ = make_token("shop", tags=["a"], expires_at=end)
    assert list(living_tokens(end - timedelta(microseconds=1))) == [token]
    assert not living_tokens(end).exists()


# --- what a token names ------------------------------------------------------------------


PATTERNS = [
    ("orders", ["orders"], ["order", "orders2", "Orders"]),
    ("inv*", ["inv", "inv-2026", "inv*"], ["in", "xinv"]),
    ("a*c*e", ["ace", "abcde", "acce"], ["ac", "ae", "aecx"]),
    ("item?", ["item?"], ["items", "item"]),
    ("[ab]*", ["[ab]", "[ab]c"], ["a", "b", "ab"]),
    ("[!a]", ["[!a]"], ["b", "[", "!"]),
]


def test_a_star_is_the_one_wildcard() -> None:
    """Every other character of a pattern stands for itself, also those that fnmatch knows."""
    for pattern, fitting, others in PATTERNS:
        known = find_token(make_token("shop", tags=[pattern])[1])
        assert known is not None
        assert [name for name in fitting + others if known.may_take_of_tag(name)] == fitting
        served = Tags([pattern], None)
        for name in fitting:
            served.serve(name)
        for name in others:
            with pytest.raises(UnknownTag):
                served.serve(name)


def test_names_of_nothing_are_warned_of(no_tags: None) -> None:
    """By each name or pattern that there is none of; the token is made: there may be one later."""
    LeafAlloc.objects.create(biz_tag="shop.order")
    tags = ("--tags", "shop.order", "s*r", "odrers", "new*")
    out, err = run("create", "shop", *tags, "--generators", "defualt", "--leases", "d*", "x*")
    assert works(out)
    assert [line for line in err.splitlines() if "“" in line] == [
        "There is no tag “odrers” yet.",
        "There is no tag “new*” yet.",
        "No generator is called “defualt”; there are: default.",
        "No generator is called “x*”; there are: default.",
    ]
    assert "“" not in run("create", "lab", "--tags", "s*r", "*", "--generators", "default")[1]
