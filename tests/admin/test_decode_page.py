"""The admin page that takes an id apart: for whom, and what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib import admin
from django.db import connections, transaction
from django.db.models import Model
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_idgen import generators
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.process import maps
from tests import servers
from tests.admin.people import staff
from tests.app.models import Customer, Order

pytestmark = pytest.mark.django_db(databases=["default", "postgres"])

PAGE = "/admin/django_idgen/decode/"


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    with override_settings(IDGEN={}):
        yield
    maps.reset()


def shown(client: Client, given: str) -> str:
    answer = client.get(PAGE, {"id": given})
    assert answer.status_code == 200
    return answer.content.decode()


def words(page: str) -> str:
    """The page's text, without markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


# --- where it is, and for whom --------------------------------------------------------------


def test_it_has_a_name_and_stands_on_the_index(admin_client: Client) -> None:
    """Under our app, as the tables do."""
    assert reverse("admin:django_idgen_decode") == PAGE
    for index in ("/admin/", "/admin/django_idgen/"):
        assert f'href="{PAGE}"' in admin_client.get(index).content.decode()
    assert "Id, in any form" in admin_client.get(PAGE).content.decode()


def test_strangers_and_staff_without_rights_do_not_get_in(client: Client) -> None:
    """The one is asked to log in, the other is refused; neither finds it on the index."""
    assert client.get(PAGE).status_code == 302
    nobody = staff()
    assert nobody.get(PAGE).status_code == 403
    assert PAGE not in nobody.get("/admin/").content.decode()


def test_whoever_may_view_tags_or_leases_may_decode() -> None:
    """It takes no permission of its own."""
    for right in ("view_leafalloc", "change_leafalloc", "view_workerlease"):
        client = staff(right, name=right)
        assert client.get(PAGE).status_code == 200
        assert PAGE in client.get("/admin/").content.decode()


@pytest.mark.usefixtures("no_tags")
def test_each_sees_what_those_may() -> None:
    """Who held a worker id is for those who may view leases, tags for those who may view them."""
    number = str(generators["default"].next_id())
    LeafAlloc.objects.create(biz_tag="orders", max_id=2**62)
    leases, tags = staff("view_workerlease", name="a"), staff("view_leafalloc", name="b")
    assert "Holder then" in shown(leases, number)
    assert "orders" not in shown(leases, number)
    assert "Holder then" not in shown(tags, number)
    assert "orders" in shown(tags, number)


def test_nothing_is_posted_there(admin_client: Client) -> None:
    """An id is in the address, so that a link can be given."""
    assert admin_client.post(PAGE, {"id": "5"}).status_code == 405
    assert admin_client.head(PAGE, {"id": "5"}).status_code == 200


# --- what it shows -----------------------------------------------------------------------------


@pytest.mark.parametrize("alias", ["default", "postgres"])
def test_an_id_is_drawn_and_told(admin_client: Client, alias: str, settings: Any) -> None:
    """64 bits, to scale; its time in the user's zone and UTC; who holds the worker id."""
    if alias != "default":
        servers.require(alias)
    settings.TIME_ZONE = "Asia/Shanghai"
    lender = {"OPTIONS": {"database": alias}}
    entry = {
        "NAMESPACE": f"decode page {alias}",
        "LAYOUT": {"time": 41, "worker": {"rack": 4, "host": 6}, "sequence": 12},
        "LEASES": lender,
        "OPTIONS": {"holder": "web-7"},
    }
    settings.IDGEN = {"GENERATORS": {"default": entry}}
    number = generators["default"].next_id()
    page = shown(admin_client, f" {number} ")
    parts = generators["default"].decode(number)  # type: ignore[attr-defined]
    assert len(re.findall(r'class="idgen-(?:one|zero) ', page)) == 64
    digits = "".join(re.findall(r'class="idgen-(?:one|zero) [\w-]+">(.)<', page))
    assert int(digits, 2) == number
    spans = re.findall(r'<th class="idgen-\w+" colspan="(\d+)', page)
    assert spans == ["1", "41", "10", "12"]
    text = words(page)
    for zone, offset in ((UTC, "+0000"), (ZoneInfo("Asia/Shanghai"), "+0800")):
        local = parts.created.astimezone(zone).replace(tzinfo=None)
        assert f"{local.isoformat(' ', 'milliseconds')} {offset}" in text
    assert "web-7" in text
    rack, host = parts.worker_parts.values()
    assert f"{parts.worker} (rack {rack}, host {host})" in text
    assert f"?generator=default&amp;q={parts.worker}" in page


def test_the_last_hours_that_have_a_date_are_told(admin_client: Client, settings: Any) -> None:
    """In UTC, where the user's zone is past the year 9999 by then."""
    layout = {"time": 38, "worker": 10, "sequence": 12, "tick": 1.0}
    settings.IDGEN = {"GENERATORS": {"default": {"LAYOUT": layout}}}
    known = maps.current_settings().generators["default"].layout
    last = known.min_id_at(datetime(9999, 12, 31, 20, tzinfo=UTC))
    for settings.TIME_ZONE in ("Asia/Shanghai", "America/New_York"):
        assert "9999-12-31 20:00:00" in shown(admin_client, str(last))


@pytest.mark.usefixtures("no_tags")
def test_a_number_of_a_tag_shows_the_grant_that_it_came_from(admin_client: Client) -> None:
    """Its range, its holder and when, where there is a history; else that it may be of it."""
    LeafAlloc.objects.create(biz_tag="orders", max_id=5000)
    text = words(shown(admin_client, "4321"))
    assert "Possibly given out: the next free id is 5000. Which process got it is not" in text
    taken = "2026-06-01T12:00:00Z"
    SegmentHistory.objects.create(
        tag="orders", start=4001, stop=5001, holder="web-3:99", taken_at=taken
    )
    text = words(shown(admin_client, "4321"))
    assert "orders 4001 – 5000 web-3:99 (default) 2026-06-01 12:00:00 +0000" in text
    viewer = staff("view_leafalloc")
    text = words(shown(viewer, "4321"))
    assert "web-3" not in text
    assert "You may not view the history" in text


def test_the_row_is_linked_for_those_who_may_see_it(admin_client: Client) -> None:
    """By a prefix, which names the model; others are not told whether it is there."""
    customer = Customer.objects.create(name="Ada <b>")
    text = customer.get_id_display()
    page = shown(admin_client, text)
    assert f'href="/admin/app/customer/{customer.pk}/change/"' in page
    assert "Ada &lt;b&gt;" in page
    page = shown(staff("view_leafalloc"), text)
    assert "Ada" not in page
    assert "app.Customer.id:" not in words(page)
    Customer.objects.all().delete()
    assert "no such row" in shown(admin_client, text)


def test_a_number_is_looked_up_in_no_table(admin_client: Client) -> None:
    """It may be the id of any model's row; a prefix names the model."""
    order = Order.objects.create(note="first")
    with CaptureQueriesContext(connections["default"]) as captured:
        page = shown(admin_client, str(order.pk))
    assert "app_order" not in " ".join(each["sql"] for each in captured.captured_queries)
    assert "app.Order.id" not in page


def test_a_row_that_its_own_page_keeps_from_a_user_is_not_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where each tenant sees rows of their own: there is none, for them."""
    customer = Customer.objects.create(name="Ada")
    own = type(admin.site._registry[Customer])
    monkeypatch.setattr(own, "get_queryset", lambda *_: Customer.objects.exclude(name="Ada"))
    page = words(shown(admin_client, customer.get_id_display()))
    assert "Ada" not in page
    assert "app.Customer.id : no such row" in page.replace("id:", "id :")


def test_a_table_that_is_not_there_is_told_in_the_page(admin_client: Client, settings: Any) -> None:
    """Also where a request is a transaction, which the server ends at its first error."""
    servers.require("postgres")
    lender = {"OPTIONS": {"database": "postgres"}}
    settings.IDGEN = {"GENERATORS": {"default": {"LEASES": lender}}, "SEGMENTS": {"SOURCE": lender}}
    settings.DATABASE_ROUTERS = [Away()]
    number = Customer(pk=5).get_id_display()
    with transaction.atomic(using="postgres"):
        with connections["postgres"].cursor() as cursor:
            cursor.execute("ALTER TABLE app_customer RENAME TO elsewhere")
        page = shown(admin_client, number)
        assert LeafAlloc.objects.using("postgres").count() == 0
        transaction.set_rollback(True, using="postgres")
    assert "“app_customer” can&#x27;t be queried" in page


class Away:
    """A router that has customers on another database."""

    def db_for_read(self, model: type[Model], **_: Any) -> str | None:
        return "postgres" if model is Customer else None


def test_every_reading_is_shown(admin_client: Client) -> None:
    """A text that may be two forms is shown as both, each with why."""
    text = words(shown(admin_client, "0000000000042"))
    assert "It can be read in 3 ways" in text
    assert "app.Bill.id" in text
    assert "app.Purchase.id" in text


def test_nonsense_is_told_in_words(admin_client: Client) -> None:
    """Beside what was given, escaped."""
    for given in ("nope", "0", "-1", str(2**63), "<script>", "\x00", "x" * 20_000):
        page = shown(admin_client, given)
        assert 'role="alert"' in page, given
        assert "<script>" not in re.sub(r"<script [^>]*src=[^>]*>", "", page)


def test_numbers_have_no_thousand_separators(admin_client: Client, settings: Any) -> None:
    """An id that is copied from the page is one."""
    settings.USE_THOUSAND_SEPARATOR = True
    number = generators["default"].next_id()
    page = shown(admin_client, str(number))
    assert f">{number}<" in page
    assert f"{number:,}" not in page


def test_a_page_has_no_styles_or_scripts_of_its_own(admin_client: Client) -> None:
    """A strict Content-Security-Policy may be in force."""
    own = shown(admin_client, str(generators["default"].next_id()))
    own = own[own.index('id="content-main"') :]
    assert "style=" not in own
    assert "<script" not in own[: own.index("</footer>")] if "</footer>" in own else True
    assert not re.search(r"\son\w+=", own)


def test_impossible_settings_are_told(admin_client: Client) -> None:
    """Not a page of an error."""
    with override_settings(IDGEN={"GENERATORS": {"default": {"LAYOUT": "nope"}}}):
        assert "There is no layout" in words(shown(admin_client, "5"))
