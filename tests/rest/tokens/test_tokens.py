"""Access tokens: a secret is shown once and left nowhere, and an end is final."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.core import serializers
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import include, path
from django.utils import timezone

from django_idgen.models import AccessToken, LeafAlloc
from django_idgen.rest.tokens import find_token, make_token, revoke_tokens
from tests import servers
from tests.admin.people import staff
from tests.server_tools import unreachable

pytestmark = pytest.mark.django_db

urlpatterns = [
    path("admin/", admin.site.urls),
    path("idgen/", include("django_idgen.rest.urls")),
]

LIST = "/admin/django_idgen/accesstoken/"
ADD = f"{LIST}add/"
SECRET = re.compile(r"idgen_[-_A-Za-z0-9]{43}")
FORM = {"name": "shop", "tags": "orders\r\ninv*", "generators": "", "leases": ""}
NEVER = {"expires_at_0": "", "expires_at_1": ""}
LATER = {"expires_at_0": "2030-01-01", "expires_at_1": "00:00:00"}
RIGHTS = {**FORM, "tags": "orders"}


def change(token: AccessToken) -> str:
    return f"{LIST}{token.pk}/change/"


def act(client: Client, action: str, *tokens: AccessToken) -> Any:
    chosen = {"action": action, "_selected_action": [token.pk for token in tokens]}
    return client.post(LIST, chosen)


def kept(client: Client) -> str:
    """All that stays when the page is gone."""
    sessions = [session.get_decoded() for session in Session.objects.all()]
    entries = [(entry.object_repr, entry.change_message) for entry in LogEntry.objects.all()]
    rows = list(AccessToken.objects.values())
    return repr((sessions, entries, rows, client.cookies.output()))


def test_a_secret_is_in_the_answer_to_the_post_and_nowhere_else(
    admin_client: Client, caplog: Any
) -> None:
    """Neither in the session, a cookie, a URL, the admin's log, ours, nor on a page after it."""
    caplog.set_level(logging.DEBUG)
    answer = admin_client.post(ADD, {**FORM, **NEVER})
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    (secret,) = set(SECRET.findall(answer.text))
    assert find_token(secret).tags == ("orders", "inv*")  # type: ignore[union-attr]
    assert secret not in kept(admin_client) + caplog.text
    assert secret not in repr(dict(answer.headers))
    assert "style=" not in answer.text.partition('id="content-main"')[2]  # a strict policy holds
    token = AccessToken.objects.get()
    for url in (LIST, change(token), f"{LIST}{token.pk}/history/", "/admin/"):
        page = admin_client.get(url).text
        assert not SECRET.search(page)
        assert token.digest not in page
    assert LogEntry.objects.get().object_repr == f"shop (…{secret[-4:]})"


def test_whatever_button_is_pressed_the_secret_is_shown(admin_client: Client) -> None:
    """It could never be shown again."""
    for button in ("_continue", "_addanother", "_save"):
        answer = admin_client.post(ADD, {**FORM, **NEVER, button: "1"})
        assert SECRET.search(answer.text)


def hidden(page: str) -> dict[str, str]:
    """What the form of a new token sends along."""
    return dict(re.findall(r'<input type="hidden" name="(newest)" value="(\d+)"', page))


def test_a_reload_of_the_answer_makes_no_second_token(admin_client: Client) -> None:
    """It names the token that the first POST made. To save once more is a wish for another."""
    make_token("lab", tags=["*"])
    form = {**FORM, **NEVER, **hidden(admin_client.get(ADD).text)}
    assert form.keys() >= {"newest"}
    first = admin_client.post(ADD, form)
    (secret,) = set(SECRET.findall(first.text))
    for _reload in range(2):
        again = admin_client.post(ADD, form)
        assert not SECRET.search(again.text)
        assert f"token shop (…{secret[-4:]}) was made and" in again.text
        assert 'name="name" value="shop"' in again.text  # what was typed is still there
        assert "no-store" in again["Cache-Control"]
        assert AccessToken.objects.filter(name="shop").count() == 1
    assert SECRET.search(admin_client.post(ADD, {**form, **hidden(again.text)}).text)
    assert AccessToken.objects.filter(name="shop").count() == 2
    form |= hidden(admin_client.get(ADD).text)
    make_token("lab", tags=["*"])  # another client's is in nobody's way
    assert SECRET.search(admin_client.post(ADD, form).text)


@pytest.mark.parametrize(
    ("rights", "command"),
    [
        ({"tags": "orders\r\ninv*"}, "-X POST -H 'Authorization: Bearer {}' '{}tags/orders/ids'"),
        ({"tags": "inv*"}, "-X POST -H 'Authorization: Bearer {}' '{}tags/invoice/ids'"),
        ({"generators": "*"}, "-X POST -H 'Authorization: Bearer {}' '{}generators/default/ids'"),
        ({"leases": "default"}, "-H 'Authorization: Bearer {}' '{}generators/default/leases'"),
    ],
)
def test_a_new_token_comes_with_a_curl_that_uses_it(
    admin_client: Client, rights: dict[str, str], command: str, settings: Any
) -> None:
    """The whole command: for a tag or a generator that it names."""
    settings.ROOT_URLCONF = __name__
    LeafAlloc.objects.create(biz_tag="invoice")
    nothing = {"name": "shop", "tags": "", "generators": "", "leases": ""}
    page = unescape(admin_client.post(ADD, {**nothing, **NEVER, **rights}).text)
    secret = SECRET.findall(page)[0]
    assert f"curl {command.format(secret, 'http://testserver/idgen/')}" in page


@pytest.mark.django_db(transaction=True, databases=["default", "postgres"])
def test_a_new_secret_is_shown_though_the_database_of_the_tags_is_down(
    admin_client: Client,
) -> None:
    """The tags are only asked for an example."""
    servers.require("postgres")
    tags = {"SOURCE": {"OPTIONS": {"database": "postgres"}}}
    with unreachable("postgres"), override_settings(IDGEN={"SEGMENTS": tags}):
        assert SECRET.search(admin_client.post(ADD, {**FORM, **NEVER}).text)
        old = AccessToken.objects.get()
        assert SECRET.search(act(admin_client, "replace", old).text)
    LeafAlloc.objects.all().delete()


def test_what_can_not_be_is_refused(admin_client: Client) -> None:
    """A form error, for a forged key, too; a 403 in a popup, which would hide the secret."""
    for wrong in (
        *({"newest": newest} for newest in ("x", "-1", "9" * 30, "\x00")),
        *({"name": ""}, {"name": "\x00"}, {"tags": "x" * 129}),
        *({"leases": "a\r\n b"}, {"generators": "a\tb"}),
    ):
        answer = admin_client.post(ADD, {**FORM, **NEVER, **wrong})
        assert "errorlist" in answer.text, wrong
        assert not SECRET.search(answer.text)
    assert admin_client.post(ADD, {**FORM, **NEVER, "_popup": "1"}).status_code == 403
    assert not AccessToken.objects.exists()


@pytest.mark.parametrize("odd", ["a\nb", "a\x1b[31m", "a\u202eb", "a\u2028b"])
def test_a_name_that_a_log_would_show_as_something_else_is_refused(odd: str) -> None:
    """Hazard 116: of a client, and of a tag's description, which stand in logs and lists."""
    for row in (AccessToken(name=odd, tags="*"), LeafAlloc(biz_tag="t", description=odd)):
        with pytest.raises(ValidationError) as error:
            row.full_clean(exclude=["digest", "hint"])
        assert {"name", "description"} & set(error.value.message_dict)


def test_rights_are_changed_and_the_secret_stays(admin_client: Client) -> None:
    """What a form sends of the secret's is passed over. It may end sooner or later."""
    token, secret = make_token("shop", tags=["orders"])
    wanted = {**FORM, **NEVER, "tags": "invoices", "digest": "0" * 64, "hint": "0000"}
    assert admin_client.post(change(token), wanted).status_code == 302
    known = find_token(secret)
    assert known is not None
    assert (known.pk, known.tags) == (token.pk, ("invoices",))
    for end in (LATER, NEVER):
        assert admin_client.post(change(token), {**RIGHTS, **end}).status_code == 302
        assert find_token(secret) is not None


def test_replacing_shows_a_new_one_and_gives_the_former_a_day(admin_client: Client) -> None:
    """One for each client, with the rights of what was chosen; what has ended is passed over."""
    shop, shop_secret = make_token("shop", tags=["orders"])
    lab, _ = make_token("lab", generators=["*"])
    ended, _ = make_token("ended", tags=["*"], expires_at=datetime.now(UTC) - timedelta(days=1))
    answer = act(admin_client, "replace", shop, lab, ended)
    assert answer.status_code == 200
    secrets = set(SECRET.findall(answer.text))
    assert len(secrets) == 2
    found = {token.name: token for token in map(find_token, secrets) if token is not None}
    assert found["shop"].tags == ("orders",)
    assert found["lab"].generators == ("*",)
    assert found["lab"].tags == ()
    assert find_token(shop_secret) is not None
    shop.refresh_from_db()
    assert shop.expires_at is not None
    assert timedelta(hours=23) < shop.expires_at - datetime.now(UTC) <= timedelta(days=1)
    assert not any(secret in kept(admin_client) for secret in secrets)
    assert LogEntry.objects.count() == 2


def test_a_reload_of_a_replacement_replaces_nothing(admin_client: Client) -> None:
    """It names the newer token, which can be replaced."""
    shop, _ = make_token("shop", tags=["orders"])
    (secret,) = set(SECRET.findall(act(admin_client, "replace", shop).text))
    again = act(admin_client, "replace", shop)
    assert again.status_code == 302
    assert f"has a newer token, shop (…{secret[-4:]})" in admin_client.get(LIST).text
    assert AccessToken.objects.count() == 2
    assert SECRET.search(act(admin_client, "replace", AccessToken.objects.latest("pk")).text)


def test_revoking_ends_it_now_is_logged_and_shows(admin_client: Client) -> None:
    """With a word on the processes that have just seen it; what has ended has no other end."""
    token, secret = make_token("shop", tags=["orders"])
    assert act(admin_client, "revoke", token).status_code == 302
    assert find_token(secret) is None
    page = admin_client.get(LIST).text
    assert "1 revoked" in page
    assert "within 60 s" in page
    act(admin_client, "revoke", token)
    assert LogEntry.objects.count() == 1
    assert act(admin_client, "replace", token).status_code == 302
    assert "None of these tokens works any more." in admin_client.get(LIST).text
    # In words: a tick would have no name on a phone, where the table has no head.
    ended = admin_client.get(f"{LIST}?state=ended").text
    assert re.search(r'class="field-state">.*>ended<', ended)
    assert "shop" not in admin_client.get(f"{LIST}?state=works").text
    make_token("lab", tags=["*"])
    page = admin_client.get(f"{LIST}?state=works").text
    assert re.search(r'class="field-state">.*>works<', page)


class Reads:
    """A router that reads from a replica, which has none of the tokens yet."""

    def db_for_read(self, model: Any, **_hints: Any) -> str | None:
        return "postgres" if model is AccessToken else None

    def db_for_write(self, model: Any, **_hints: Any) -> str | None:
        return "default" if model is AccessToken else None


@pytest.mark.django_db(databases=["default", "postgres"])
def test_a_replica_that_lags_behind_is_not_asked(admin_client: Client, settings: Any) -> None:
    """The list, its filter, a token's page and the actions read what they write."""
    servers.require("postgres")
    token, _ = make_token("shop", tags=["orders"])
    settings.DATABASE_ROUTERS = [Reads()]
    for url in (LIST, f"{LIST}?state=works", change(token)):
        page = admin_client.get(url)
        assert (page.status_code, "shop" in page.text) == (200, True), url
    assert SECRET.search(act(admin_client, "replace", token).text)
    act(admin_client, "revoke", *AccessToken.objects.using("default"))
    assert all(each.has_ended for each in AccessToken.objects.using("default"))


def test_permissions_count_for_the_actions_too() -> None:
    """To look is not to make, replace or revoke; to change is no right to make a new secret."""
    token, secret = make_token("shop", tags=["orders"])
    client = staff("view_accesstoken")
    assert client.get(LIST).status_code == 200
    assert client.post(ADD, {**FORM, **NEVER}).status_code == 403
    assert client.post(change(token), {**FORM, **NEVER}).status_code == 403
    for action in ("replace", "revoke"):
        act(client, action, token)
    client = staff("view_accesstoken", "change_accesstoken", name="changes")
    act(client, "replace", token)
    assert AccessToken.objects.count() == 1
    assert find_token(secret) is not None
    act(client, "revoke", token)
    assert find_token(secret) is None


def test_names_and_patterns_are_escaped(admin_client: Client) -> None:
    """Wherever they are shown."""
    make_token("<b>shop</b>", tags=["<i>*"])
    made = admin_client.post(ADD, {**FORM, **NEVER, "name": "<b>lab</b>"})
    page = admin_client.get(LIST).text + made.text
    assert not any(each in page for each in ("<b>shop", "<b>lab", "<i>*"))


def test_a_token_that_names_nothing_that_there_is_says_so(
    admin_client: Client, no_tags: None
) -> None:
    """Beside the secret of a new one, and when one is changed."""
    wrong = {**FORM, **NEVER, "tags": "odrers", "generators": "defualt"}
    page = admin_client.post(ADD, wrong).text
    assert SECRET.search(page)
    assert "There is no tag “odrers” yet." in page
    assert "No generator is called “defualt”" in page
    nothing = {**wrong, "tags": "", "generators": ""}
    answer = admin_client.post(change(AccessToken.objects.get()), nothing, follow=True)
    assert "it may take nothing" in answer.text


def test_a_request_with_a_token_that_names_nothing_is_told_so(settings: Any) -> None:
    """403 that says what is wrong with the token."""
    settings.ROOT_URLCONF = "tests.remote.urls"
    client = Client(headers={"Authorization": f"Bearer {make_token('shop')[1]}"})
    for url in ("tags/orders/ids", "tags/orders/segment", "generators/default/ids"):
        answer = client.get(f"/idgen/{url}")
        assert answer.status_code == 403
        assert "it may take nothing" in answer.json()["detail"]


# --- the end of a token: final once it is over ----------------------------------------

FAR = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)


def test_no_form_makes_a_revoked_token_valid_again() -> None:
    """A user who may change tokens sees its page, and can send nothing."""
    token, secret = make_token("shop", tags=["orders"])
    revoke_tokens(AccessToken.objects.filter(pk=token.pk))
    client = staff("view_accesstoken", "change_accesstoken")
    url = change(token)
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
