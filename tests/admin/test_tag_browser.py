"""The pages of tags in a real browser, as wide as a phone: in Django's theme and in another."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from django_idgen.core.clock import SYSTEM_CLOCK
from tests.example.test_example_pages import PATIENCE, dump

pytestmark = pytest.mark.long

MADE = """
from django.contrib.auth.models import User
User.objects.create_superuser("admin", "", "x")
from django_idgen.models import LeafAlloc
from django_idgen import segments
for number in range(60):
    segments["orders"].next_ids(1000)
LeafAlloc.objects.create(biz_tag="x" * 60 + ".still", paused=True, max_id=2**62, holder="h" * 60)
from django_idgen.rest.tokens import make_token
make_token("w" * 60, tags=["t" * 60])
"""
TAGS = "/admin/django_idgen/leafalloc/"
PAGES = {
    "list": TAGS,
    "tag": f"{TAGS}orders/change/?span=hour",
    "skip": f"{TAGS}skip/?tag=orders",
    "pause": f"{TAGS}pause/?tag=orders&tag={'x' * 60}.still",
    "history": f"{TAGS}orders/history/",
    "add": f"{TAGS}add/",
    "tokens": "/admin/django_idgen/accesstoken/",
}


@pytest.fixture(scope="module", params=["django", "unfold"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the project, as ``runserver`` serves it, with some tags."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.admin.tag_site",
        "TAG_SITE_THEME": request.param,
        "TAG_SITE_DATABASE": str(tmp_path_factory.mktemp("site") / "site.sqlite3"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }

    def manage(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "django", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    for words in (["migrate", "-v0"], ["shell", "-v0", "-c", MADE]):
        process = manage(*words)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    server = manage("runserver", f"127.0.0.1:{port}", "--noreload")
    try:
        yield _awaited(f"http://127.0.0.1:{port}", server)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


def _awaited(url: str, server: subprocess.Popen[str]) -> str:
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    while SYSTEM_CLOCK.stopwatch() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/measure/", timeout=PATIENCE).close()
        except urllib.error.URLError:
            SYSTEM_CLOCK.sleep(0.1)
        else:
            return url
    pytest.fail(f"runserver did not answer: {server.communicate(timeout=5)[0]}")


def measured(site: str, profile: Path, *pages: str, **options: int) -> dict[str, Any]:
    """What the browser found on each of the pages, by its address."""
    query = urlencode({"page": pages, **options}, doseq=True)
    page = dump(f"{site}/measure/?{query}", profile)
    (words,) = re.findall(r'<pre id="found">([^<]*)</pre>', page)
    found: dict[str, Any] = json.loads(unescape(words))
    return found


def test_the_list_fits_a_laptop(site: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With the bars of Django's theme no column of a usual tag lies out of sight."""
    address = f"{TAGS}?q=orders"
    found = measured(site, tmp_path, address, width=1280)[address]
    assert found["steps"] == 1
    assert found["overflow"] == 0
    if request.node.callspec.params["site"] == "django":
        assert found["out_of_sight"] == 0


def test_pages_fit_a_phone_in_light_and_dark(
    site: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """None is wider than a phone; fingers can hit the buttons; the chart is drawn; themes count."""
    told = measured(site, tmp_path, *PAGES.values())
    found = {name: told[address] for name, address in PAGES.items()}
    assert {name: each["overflow"] for name, each in found.items()} == dict.fromkeys(PAGES, 0)
    assert found["list"]["steps"] == 2
    assert found["tag"]["bars"] >= 1
    assert found["tag"]["bar"] > 20
    if request.node.callspec.params["site"] == "django":
        assert found["tokens"]["out_of_sight"] == 0
    # What is asked before something is done lies within sight, too.
    assert found["skip"]["stacked"] == found["pause"]["stacked"] == [0]
    for name in ("tag", "skip", "pause"):
        assert found[name]["lowest"] >= 40
        assert found[name]["light"] != found[name]["dark"]
