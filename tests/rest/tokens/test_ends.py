"""The end of an access token: final once it is over, and never so far off that a page breaks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core import serializers
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from django_idgen.models import AccessToken
from django_idgen.rest.tokens import find_token, make_token, revoke_tokens
from tests.admin.people import staff

pytestmark = pytest.mark.django_db

LIST = "/admin/django_idgen/accesstoken/"
LATER = {"expires_at_0": "2030-01-01", "expires_at_1": "00:00:00"}
NEVER = {"expires_at_0": "", "expires_at_1": ""}
RIGHTS = {"name": "shop", "tags": "orders", "generators": "", "leases": ""}
FAR = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)


def test_no_form_makes_a_revoked_token_valid_again() -> None:
    """A user who may change tokens sees its page, and can send nothing."""
    token, secret = make_token("shop", tags=["orders"])
    revoke_tokens(AccessToken.objects.filter(pk=token.pk))
    client = staff("view_accesstoken", "change_accesstoken")
    url = f"{LIST}{token.pk}/change/"
    page = client.get(url)
    assert page.status_code == 200
    assert 'name="expires_at_0"' not in page.text
    for end in (NEVER, LATER):
        assert client.post(url, {**RIGHTS, **end}).status_code == 403
        assert find_token(secret) is None


def test_a_form_that_was_opened_before_it_was_revoked_changes_nothing() -> None:
    """Nor does code that read the token then, or a fixture that was dumped then."""
    token, secret = make_token("shop", tags=["orders"])
    dumped = serializers.serialize("json", [token])
    read = AccessToken.objects.get(pk=token.pk)
    revoke_tokens(AccessToken.objects.filter(pk=token.pk))
    with pytest.raises(ValidationError, match="has expired or was revoked"):
        read.full_clean()
    read.save()
    assert find_token(secret) is None
    for each in serializers.deserialize("json", dumped):
        each.save()
    assert find_token(secret) is None
    token.expires_at = timezone.now() + timedelta(days=1)
    token.save(update_fields=["expires_at"])
    assert find_token(secret) is None


def test_a_token_that_works_may_end_sooner_or_later() -> None:
    """Until it has ended."""
    token, secret = make_token("shop", tags=["orders"])
    client = staff("view_accesstoken", "change_accesstoken")
    url = f"{LIST}{token.pk}/change/"
    for end in (LATER, NEVER):
        assert client.post(url, {**RIGHTS, **end}).status_code == 302
        assert find_token(secret) is not None


def test_an_end_in_another_age_is_a_form_error(admin_client: Client, settings: Any) -> None:
    """With how far it may be; in code it is a ``ValidationError``."""
    for zone in ("UTC", "Asia/Shanghai", "America/New_York"):
        settings.TIME_ZONE = zone
        for day in ("9999-12-31", "2300-01-01", "0001-01-01"):
            sent = {**RIGHTS, "expires_at_0": day, "expires_at_1": "00:00:00"}
            assert "100 years" in admin_client.post(f"{LIST}add/", sent).text
    for far in (FAR, FIRST):
        with pytest.raises(ValidationError, match="100 years"):
            make_token("shop", tags=["orders"], expires_at=far)
    assert not AccessToken.objects.exists()


@pytest.mark.parametrize(("zone", "far"), [("Asia/Shanghai", FAR), ("America/New_York", FIRST)])
@pytest.mark.parametrize("zones", [True, False])
def test_a_row_with_such_an_end_breaks_no_page_and_no_command(
    admin_client: Client, settings: Any, zone: str, zones: bool, far: datetime
) -> None:
    """It is listed, replaced and revoked as any other; the others are, too."""
    settings.TIME_ZONE, settings.USE_TZ = zone, zones
    token, secret = make_token("shop", tags=["orders"])
    end = far if zones else far.replace(tzinfo=None)
    AccessToken.objects.filter(pk=token.pk).update(expires_at=end)
    pages = ("", "?state=works", "?state=ended", f"{token.pk}/change/", f"{token.pk}/history/")
    for page in pages:
        assert admin_client.get(f"{LIST}{page}").status_code == 200, page
    out = StringIO()
    call_command("idgen_token", "list", stdout=out)
    assert "shop" in out.getvalue()
    assert (find_token(secret) is not None) is (far is FAR)
    if far is FAR:
        call_command("idgen_token", "rotate", "shop", stdout=out, stderr=out)
        assert AccessToken.objects.latest("pk").expires_at is not None
        newest = AccessToken.objects.latest("pk")
        chosen = {"action": "replace", "_selected_action": [newest.pk]}
        assert admin_client.post(LIST, chosen).status_code == 200
    call_command("idgen_token", "revoke", "shop", stdout=out)
    assert find_token(secret) is None
