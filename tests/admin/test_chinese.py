"""The admin in Chinese: its labels, buttons and explanations have no English left.

``look`` and ``told`` refuse any English word that is no name. Messages that follow an action, and
errors, name tags, hosts and settings: they are in English.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import translation

from django_idgen import generators
from django_idgen.admin.text import ago_text, duration_text, rate_text
from django_idgen.admin.workers import STATES
from django_idgen.core.inspection import WorkerState
from django_idgen.fields.forms import IdFormField
from django_idgen.models import AccessToken, LeafAlloc
from django_idgen.rest.tokens import make_token

from .chinese import ADMIN, client_of_china, look, tag, told
from .tag_tools import TAGS

__all__ = ["client_of_china", "tag"]

pytestmark = pytest.mark.django_db

LEASES = f"{ADMIN}workerlease/"
TOKENS = f"{ADMIN}accesstoken/"


def test_the_index_names_everything(client_of_china: Client) -> None:
    """The app, its tables, and the page for ids."""
    for url in ("/admin/", ADMIN):
        page = client_of_china.get(url).content.decode()
        for name in ("ID 生成器", "号段标签", "已分配号段", "工作节点 ID", "访问令牌", "解析 ID"):
            assert name in page


def test_tags(client_of_china: Client, tag: LeafAlloc) -> None:
    """The list, a tag, a new one, the pages that ask, and the list of segments."""
    assert "7 分钟前" in look(client_of_china, TAGS)
    for span in ("hour", "day", "month"):
        assert "合计 1000 个 ID" in look(client_of_china, f"{TAGS}orders/change/", span=span)
    look(client_of_china, f"{TAGS}add/")
    look(client_of_china, f"{ADMIN}segmenthistory/")
    asked: dict[str, dict[str, Any]] = {
        "pause": {},
        "change_step": {},
        "skip_ahead": {"how": "by", "number": 1000, "preview": "yes"},
    }
    for action, more in asked.items():
        for sent in ({}, more):
            chosen = {"action": action, "_selected_action": "orders", **sent}
            told(client_of_china.post(TAGS, chosen))
    LeafAlloc.objects.update(paused=True)
    assert "已暂停" in look(client_of_china, TAGS)
    look(client_of_china, f"{TAGS}orders/change/")


def test_worker_ids(client_of_china: Client) -> None:
    """Those of a generator, none of another, and the page that asks before a release."""
    number = generators["default"].next_id()
    worker = generators["default"].decode(number).worker  # type: ignore[attr-defined]
    assert "1024 个工作节点 ID 中有 1 个在用" in look(client_of_china, LEASES)
    assert "没有进程持有" in look(client_of_china, LEASES, generator="wide")
    look(client_of_china, f"{LEASES}release/", generator="default", worker=worker)
    assert len({str(name) for name in STATES.values()}) == len(WorkerState)


def test_access_tokens(client_of_china: Client) -> None:
    """The list, the form, and the page of the secret."""
    make_token("shop", tags=["orders"], leases=["wide"])
    assert "可自行运行生成器: wide" in look(client_of_china, TOKENS)
    look(client_of_china, f"{TOKENS}add/")
    look(client_of_china, f"{TOKENS}{AccessToken.objects.get().pk}/change/")
    expiry = {"expires_at_0": "", "expires_at_1": ""}
    form = {"name": "web", "tags": "*", "generators": "", "leases": "", **expiry}
    answer = client_of_china.post(f"{TOKENS}add/", form)
    answer.content = re.sub(rb"<code.*?</code>", b"", answer.content)
    assert "只显示" in told(answer)


def test_decoding(client_of_china: Client, tag: LeafAlloc) -> None:
    """The labels. What a reading says is English, as in the terminal."""
    url = f"{ADMIN}decode/"
    look(client_of_china, url)
    number = generators["default"].next_id()
    for given, expected in (
        (number, ("时间戳", "工作节点", "序列号", "当时的持有者", "生成时间")),
        (4500, ("按标签的 ID 解析",)),
        ("0000000000042", ("种解读",)),
        ("nope", ("这不是 ID。",)),
    ):
        page = client_of_china.get(url, {"id": given}).content.decode()
        assert all(word in page for word in expected)


def test_ids_in_the_pages_of_a_project(client_of_china: Client) -> None:
    """The filter by creation, and a form that refuses what is no id."""
    page = client_of_china.get("/admin/app/purchase/").content.decode()
    assert "以 创建时间" in page
    assert "以 Customer：创建时间" in page
    with translation.override("zh-hans"), pytest.raises(ValidationError, match="请输入有效的 ID"):
        IdFormField().clean("nope")


def test_units_are_chinese() -> None:
    """Rates and times, each as a whole."""
    with translation.override("zh-hans"):
        assert [rate_text(each) for each in (12.3, 840 / 3600, 3 / 86_400, 1e-9)] == [
            "12.3 个/秒",
            "840 个/小时",
            "3 个/天",
            "少于 1 个/天",
        ]
        assert [duration_text(each) for each in (30, 240, 7200, 3 * 86_400, 40 * 31_557_600)] == [
            "30 秒",
            "4 分钟",
            "2 小时",
            "3 天",
            "40 年",
        ]
        assert ago_text(240) == "4 分钟前"


def test_another_language_is_left_in_english(client_of_china: Client, tag: LeafAlloc) -> None:
    """A language that we don't speak is shown Django's words and our English; nothing breaks."""
    client_of_china.defaults["HTTP_ACCEPT_LANGUAGE"] = "fr"
    page = client_of_china.get(TAGS).content.decode()
    assert '<html lang="fr"' in page
    assert "next fetch" in page.casefold()
