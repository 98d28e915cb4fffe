"""The admin as somebody sees it whose browser asks for Chinese: no English of ours is left.

What looks at a page (``look``, ``told``) refuses any English word that is no name.
"""

from __future__ import annotations

import datetime
import re
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import translation

from django_idgen import generators
from django_idgen.admin.text import (
    clock_offset_text,
    count_text,
    duration_text,
    pool_text,
    rate_text,
    seconds_text,
)
from django_idgen.admin.workers import STATES
from django_idgen.core.inspection import WorkerState
from django_idgen.fields.forms import IdFormField
from django_idgen.models import AccessToken, LeafAlloc
from django_idgen.rest.tokens import make_token
from tests import servers
from tests.places import make_tables

from .chinese import ADMIN, client_of_china, look, tag, told, told_secret
from .tag_tools import TAGS, list_form, shown_at

__all__ = ["client_of_china", "tag"]

pytestmark = pytest.mark.django_db

LEASES = f"{ADMIN}workerlease/"
TOKENS = f"{ADMIN}accesstoken/"
DAY = datetime.timedelta(days=1)

# --- each page ------------------------------------------------------------------------------


def test_the_index_names_everything(client_of_china: Client) -> None:
    """The app, its tables, and the page for ids."""
    for url in ("/admin/", ADMIN):
        page = client_of_china.get(url).content.decode()
        for name in ("ID 生成器", "号段标签", "工作节点 ID", "访问令牌", "解析 ID"):
            assert name in page


def test_the_list_of_tags(client_of_china: Client, tag: LeafAlloc) -> None:
    """And what was saved of it, and what was refused."""
    page = look(client_of_china, TAGS)
    saved = client_of_china.post(TAGS, list_form(page, orders=500), follow=True)
    assert "已更改 1 个标签的步长" in told(saved)
    for step in (0, 10**19, "x"):
        told(client_of_china.post(TAGS, list_form(page, orders=step)))
    assert "他人已将步长" in told(client_of_china.post(TAGS, list_form(page, orders=7)))
    for action in ("preload_now", "resume"):
        chosen = {"action": action, "_selected_action": ["orders"]}
        told(client_of_china.post(TAGS, chosen, follow=True))


def test_a_tag_and_its_history(client_of_china: Client, tag: LeafAlloc) -> None:
    """Its numbers, its chart, its form with all that can be wrong, and who changed what."""
    url = f"{TAGS}orders/change/"
    for span in ("hour", "day", "month"):
        page = look(client_of_china, url, span=span)
        assert "合计 1000 个 ID" in page
    for wrong, words in (
        ({"step": 0}, "大于或等于"),
        ({"step": 10**19}, "小于或等于"),
        ({"step": "x"}, "整数"),
    ):
        shown = {"step": 1000, "initial-step": 1000}
        assert words in told(client_of_china.post(url, {**shown, **wrong}))
    for change in ({"step": 50}, {"description": "2026"}):
        stored = LeafAlloc.objects.get()
        steps = {"step": stored.step, "initial-step": stored.step}
        told(client_of_china.post(url, {**steps, **change}, follow=True))
    skip = {"tag": "orders", "to": 6001, "confirm": "yes"}
    told(client_of_china.post(f"{TAGS}skip/", skip, follow=True))
    page = look(client_of_china, f"{TAGS}orders/history/")
    assert "已更改：步长：1000 → 50" in page
    assert "已跳号：下一个可用 ID：5001 → 6001" in page


@pytest.mark.django_db(transaction=True, databases=["default", "postgres"])
def test_figures_of_a_tag(
    client_of_china: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Rates and times in the units of Chinese, in the list and on the pages of a tag."""
    servers.require("postgres")
    shown_at("postgres", monkeypatch, settings)
    source = {"OPTIONS": {"database": "postgres", "history": True}}
    settings.IDGEN = {"SEGMENTS": {"SOURCE": source}}
    make_tables("postgres")
    LeafAlloc.objects.all().delete()
    now = datetime.datetime.now(datetime.UTC)
    LeafAlloc.objects.create(
        biz_tag="orders", max_id=5001, rate=0.5, fetched_at=now, fetched_ids=1000, holder="web-1"
    )
    urls = (TAGS, f"{TAGS}orders/change/", f"{TAGS}pause/?tag=orders")
    try:
        pages = [look(client_of_china, url) for url in urls]
    finally:
        LeafAlloc.objects.all().delete()
    for page in pages:
        assert "1800 个/小时" in page
        assert "33 分钟后" in page
    assert "所有进程合计" in pages[1]


def test_a_new_tag(client_of_china: Client, tag: LeafAlloc) -> None:
    """The empty form, one that is refused, and one that there is already."""
    look(client_of_china, f"{TAGS}add/")
    filled = {"max_id": 1, "step": 5}
    for name, words in (("", "必填"), ("\x07", ""), ("orders", "已存在"), ("x" * 200, "128")):
        assert words in told(client_of_china.post(f"{TAGS}add/", {**filled, "biz_tag": name}))


def test_a_skip(client_of_china: Client, tag: LeafAlloc) -> None:
    """The question, each answer that is refused, what is lost, and what was done."""
    assert "跳过指定数量的 ID" in look(client_of_china, f"{TAGS}skip/", tag="orders")
    for how, number in (("by", 0), ("by", ""), ("to", "x"), ("to", 2**70), ("to", 7)):
        asked = {"tag": "orders", "how": how, "number": number, "review": "yes"}
        told(client_of_china.post(f"{TAGS}skip/", asked))
    asked = {"tag": "orders", "how": "by", "number": 1000, "review": "yes"}
    assert "5001 至 6000（1000 个 ID）" in told(client_of_china.post(f"{TAGS}skip/", asked))
    assert "5001 至" not in told(client_of_china.post(f"{TAGS}skip/", {**asked, "number": 1}))
    back = {"tag": "orders", "to": 7, "confirm": "yes"}
    assert "不能退回" in told(client_of_china.post(f"{TAGS}skip/", back, follow=True))
    sure = {**back, "to": 6001}
    done = told(client_of_china.post(f"{TAGS}skip/", sure, follow=True))
    assert "“orders”的下一个 ID 为 6001" in done
    assert "没有这些标签" in told(client_of_china.get(f"{TAGS}skip/", {"tag": "x"}, follow=True))


def test_a_pause(client_of_china: Client, tag: LeafAlloc) -> None:
    """The question, what was done, how a paused tag is shown, and that it goes on."""
    assert "暂停 1 个标签" in look(client_of_china, f"{TAGS}pause/", tag="orders")
    sure = {"tag": "orders", "confirm": "yes"}
    assert "“orders”已暂停" in told(client_of_china.post(f"{TAGS}pause/", sure, follow=True))
    assert "已暂停" in look(client_of_china, TAGS)
    assert "此前已暂停" in look(client_of_china, f"{TAGS}pause/", tag="orders")
    assert "恢复发号" in told(client_of_china.post(f"{TAGS}resume/", sure, follow=True))
    told(client_of_china.post(f"{TAGS}preload/", sure, follow=True))


@pytest.mark.long
def test_the_map_of_worker_ids(client_of_china: Client) -> None:
    """Each state, the details of a worker id, a layout too large to draw; and releasing one."""
    number = generators["default"].next_id()
    worker = generators["default"].decode(number).worker  # type: ignore[attr-defined]
    for query in ({}, {"worker": worker}, {"worker": 5}, {"sort": "seen"}, {"q": "web"}):
        assert "持有中" in look(client_of_china, f"{LEASES}map/default/", **query)
    assert "没有进程持有" in look(client_of_china, f"{LEASES}map/wide/")
    url = f"{LEASES}release/{worker}/default/"
    page = look(client_of_china, url)
    seal = re.search(r'name="seal" value="([^"]*)"', page)
    assert seal is not None
    form = {"seal": unescape(seal[1]), "confirm": worker}
    assert "数字不符" in told(client_of_china.post(url, {**form, "confirm": "x"}))
    assert "已更换持有者" in told(client_of_china.post(url, {"seal": "x"}, follow=True))
    assert "已释放" in told(client_of_china.post(url, form, follow=True))
    assert "无需释放" in told(client_of_china.get(url, follow=True))
    assert "（持有中）" in LogEntry.objects.get().change_message


def test_the_history_of_ids(client_of_china: Client, tag: LeafAlloc) -> None:
    """Who got which range, and when."""
    look(client_of_china, f"{ADMIN}segmenthistory/")


@pytest.mark.long
def test_access_tokens(client_of_china: Client) -> None:
    """The list, the form and what it refuses, the page of the secret, replacing and revoking."""
    look(client_of_china, f"{TOKENS}add/")
    expiry = {"expires_at_0": "", "expires_at_1": ""}
    form = {"name": "shop", "tags": "orders", "generators": "default", "leases": "wide", **expiry}
    assert "无法用于匹配" in told(client_of_china.post(f"{TOKENS}add/", {**form, "tags": "a\tb"}))
    shown = re.sub(r"<code.*?</code>", "", told_secret(client_of_china.post(f"{TOKENS}add/", form)))
    assert "永不失效" in shown
    make_token("web", tags=["*"], expires_at=datetime.datetime.now(datetime.UTC) + DAY)
    page = look(client_of_china, TOKENS)
    assert "标签：orders" in page
    key = AccessToken.objects.order_by("pk")[0].pk
    look(client_of_china, f"{TOKENS}{key}/change/")
    chosen = {"_selected_action": [each.pk for each in AccessToken.objects.all()]}
    told_secret(client_of_china.post(TOKENS, {**chosen, "action": "replace"}))
    revoked = client_of_china.post(TOKENS, {**chosen, "action": "revoke"}, follow=True)
    assert "已吊销 2 个令牌" in told(revoked)
    again = client_of_china.post(TOKENS, {**chosen, "action": "replace"}, follow=True)
    assert "均已失效" in told(again)


def test_decoding(client_of_china: Client, tag: LeafAlloc) -> None:
    """The question, a snowflake with its fields, a number of a tag, a text, and nonsense."""
    url = f"{ADMIN}decode/"
    look(client_of_china, url)
    number = generators["default"].next_id()
    page = look(client_of_china, url, id=number)
    for word in ("时间戳", "工作节点", "序列号", "当时的持有者", "生成时间"):
        assert word in page
    look(client_of_china, url, id=4500)
    assert "种解读" in look(client_of_china, url, id="0000000000042")
    page = client_of_china.get(url, {"id": "nope"}).content.decode()
    assert "这不是 ID。" in page


def test_ids_in_the_pages_of_a_project(client_of_china: Client) -> None:
    """The filter by creation, and a form that refuses what is no id."""
    page = client_of_china.get("/admin/app/purchase/").content.decode()
    assert "以 创建时间" in page
    assert "以 Customer：创建时间" in page
    with translation.override("zh-hans"), pytest.raises(ValidationError, match="请输入有效的 ID"):
        IdFormField().clean("nope")


# --- words ------------------------------------------------------------------------------------


def test_units_are_chinese() -> None:
    """Rates, times and counts, each as a whole; 10,000 has a word of its own."""
    year = 31_557_600.0
    with translation.override("zh-hans"):
        assert [rate_text(each) for each in (12.3, 840 / 3600, 3 / 86_400, 1e-9)] == [
            "12.3 个/秒",
            "840 个/小时",
            "3 个/天",
            "少于 1 个/天",
        ]
        lasts = (0.5, 30, 240, 7200, 3 * 86_400, year, 40 * year, 2e6 * year)
        assert [duration_text(each) for each in lasts] == [
            "不足 1 秒",
            "30 秒",
            "4 分钟",
            "2 小时",
            "3 天",
            "12 个月",
            "40 年",
            "1000 年以上",
        ]
        assert (count_text(1), pool_text(0)) == ("1 个 ID", "空")
        assert (seconds_text(125), seconds_text(7300)) == ("2 分 5 秒", "2 小时")
        assert (clock_offset_text(0.012), clock_offset_text(-2.5)) == ("+12 毫秒", "-2.5 秒")
        assert len({str(name) for _, name, _ in STATES.values()}) == len(WorkerState)


def test_another_language_is_left_in_english(client_of_china: Client, tag: LeafAlloc) -> None:
    """A language that we don't speak is shown Django's words and our English; nothing breaks."""
    client_of_china.defaults["HTTP_ACCEPT_LANGUAGE"] = "fr"
    page = client_of_china.get(TAGS).content.decode()
    assert '<html lang="fr"' in page
    assert "next fetch" in page.casefold()
