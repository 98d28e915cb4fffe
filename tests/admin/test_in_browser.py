"""The pages in a real browser: themes, phones, keyboard, a strict policy; and in django-unfold."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from django_idgen.core.clock import SYSTEM_CLOCK
from tests import warm
from tests.example.test_example_pages import PATIENCE, dump
from tests.servers import free_port

ROOT = Path(__file__).parents[2]
APP = "/admin/django_idgen/"
TAGS = f"{APP}leafalloc/"
PHONE, DESK = 375, 1280
TOO_LARGE = "9223372036854775808"
MADE = """
from django_idgen.models import LeafAlloc
from django_idgen import segments
for number in range(60):
    segments["orders"].next_ids(1000)
LeafAlloc.objects.create(biz_tag="x" * 60 + ".still", paused=True, max_id=2**62, holder="h" * 60)
from django_idgen.rest.tokens import make_token
make_token("w" * 60, tags=["t" * 60])
"""
Seen = dict[tuple[str, int, str], Any]

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


class Site(NamedTuple):
    url: str
    numbers: list[str]
    theme: str

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    @property
    def pages(self) -> dict[str, str]:
        release = re.search(r'href="([^"]*release/[^"]*)"', self.get(f"{APP}workerlease/"))
        assert release is not None
        return {
            "index": "/admin/",
            "decoded": f"{APP}decode/?id={self.numbers[0]}",
            "decoded js": f"{APP}decode/?id={self.numbers[1]}",
            "decoded batched": f"{APP}decode/?id={self.numbers[2]}",
            "tag": f"{APP}decode/?id=1",
            "refused": f"{APP}decode/?id={TOO_LARGE}",
            "workers": f"{APP}workerlease/",
            "wide": f"{APP}workerlease/?generator=wide",
            "away": f"{APP}workerlease/?generator=away",
            "release": html.unescape(release[1]),
            "list": TAGS,
            "change": f"{TAGS}orders/change/?span=hour",
            "long": f"{TAGS}{'x' * 60}.still/change/",
            "skip": "/asked/?action=skip_ahead",
            "preview": "/asked/?action=skip_ahead&how=by&number=5000&preview=yes",
            "pause": "/asked/?action=pause",
            "step": "/asked/?action=change_step",
            "history": f"{TAGS}orders/history/",
            "add": f"{TAGS}add/",
            "granted": f"{APP}segmenthistory/",
            "tokens": f"{APP}accesstoken/",
            "token": f"{APP}accesstoken/1/change/",
            "made": "/made/",
        }


@pytest.fixture(scope="module", params=["", "unfold"], ids=["django", "unfold"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A project with the admin in one theme, a worker id held, and tags used."""
    if request.param:
        pytest.importorskip(request.param)
    port = free_port()
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.admin.site.settings",
        "IDGEN_TEST_THEME": request.param,
        "IDGEN_TEST_FILE": str(tmp_path_factory.mktemp("site") / "db.sqlite3"),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }

    def django(*words: str) -> warm.Process:
        return warm.Process(
            ["-m", "django", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    for words in (["migrate", "-v0"], ["shell", "-v0", "-c", MADE]):
        process = django(*words)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    server = django("runserver", f"127.0.0.1:{port}", "--noreload")
    try:
        yield _taken(f"http://127.0.0.1:{port}", request.param, server)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


def _taken(url: str, theme: str, server: warm.Process) -> Site:
    """The site, once it answers, with the ids that it issued."""
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    while SYSTEM_CLOCK.stopwatch() < deadline and server.poll() is None:
        try:
            numbers = json.loads(Site(url, [], theme).get("/take/"))
        except (urllib.error.URLError, ConnectionError):
            SYSTEM_CLOCK.sleep(0.1)
        else:
            return Site(url, numbers, theme)
    server.kill()
    pytest.fail(f"runserver did not answer: {server.communicate()[0]}")


@pytest.fixture(scope="module")
def seen(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What the browser saw of each page: by its name, the width of the window, and the theme."""
    names = {url: name for name, url in site.pages.items()}
    asked = {"url": list(names), "width": [PHONE, DESK], "theme": ["light", "dark"]}
    page = dump(
        f"{site.url}/probe/?{urlencode(asked, doseq=True)}",
        tmp_path_factory.mktemp("profile"),
        budget=120_000,
    )
    found = re.search(r'<pre id="probe">([^<]*)</pre>', page)
    assert found is not None
    assert found[1], page[:2000]
    told = json.loads(html.unescape(found[1]))
    return {(names[each["url"]], each["width"], each["theme"]): each for each in told}


def test_every_page_of_ours_is_shown(seen: Seen) -> None:
    """With what it is for, in every theme and width."""
    said = {
        "index": "decode an id",
        "decoded": "+0800",
        "decoded js": "generator “js”",
        "decoded batched": "generator “batched”",
        "tag": "orders",
        "refused": "is not an id",
        "workers": "of 1024 worker ids are in use",
        "wide": "No process holds a worker id",
        "away": "only the service knows their holders",
        "release": "No id repeats",
        "preview": "a tag never goes back",
        "change": "ids in all",
        "list": "orders",
        "long": "x" * 60,
        "skip": "Enter how far to skip",
        "pause": "TagPaused",
        "step": "Change the step",
        "history": "orders",
        "add": "Next free id",
        "granted": "segments granted",
        "tokens": "w" * 60,
        "token": "may run its own generator",
        "made": "curl -X POST",
    }
    assert {name for name, *_ in seen} == said.keys()
    for (name, *_), page in seen.items():
        assert said[name].casefold() in page["text"].casefold(), name


def test_nothing_is_cut_off(seen: Seen) -> None:
    """No page scrolls sideways, nor does a list or a table in it; no name in a drawing is cut."""
    out = {key: page["out_of_sight"] for key, page in seen.items() if max(page["out_of_sight"]) > 0}
    assert out == {}
    assert {key: page["cut"] for key, page in seen.items() if page["cut"]} == {}


def test_bits_are_drawn_to_scale(seen: Seen) -> None:
    """Also on a phone: 1, 41, 10 and 12 bits of 64."""
    for width in (PHONE, DESK):
        fields = seen["decoded", width, "light"]["fields"][:4]  # then of other generators
        for drawn, bits in zip(fields, (1, 41, 10, 12), strict=True):
            assert drawn == pytest.approx(sum(fields) * bits / 64, abs=1)


def test_numbers_are_at_the_right_as_their_headers(site: Site, seen: Seen) -> None:
    """In the list of tags, and in our own tables."""
    for name in ("list", "workers", "skip"):
        if name == "list" and site.theme:
            continue  # that theme has a list of its own
        heads, cells = seen[name, DESK, "light"]["numbers"]
        assert heads, name
        assert cells, name
        assert {*heads, *cells} == {"end"}, name


def test_fingers_can_hit_the_buttons(seen: Seen) -> None:
    """On a phone, each is at least 40 pixels high."""
    for name in ("change", "skip", "pause", "step"):
        assert seen[name, PHONE, "light"]["lowest"] >= 40, name


def test_the_dark_theme_is_dark(seen: Seen) -> None:
    """Text stands out from its ground in both themes; the chart is drawn."""
    for name in ("decoded", "workers", "change", "list"):
        light, dark = seen[name, DESK, "light"], seen[name, DESK, "dark"]
        assert brightness(light["background"]) > 200
        assert brightness(dark["background"]) < 60
        for page in (light, dark):
            contrast = abs(brightness(page["color"]) - brightness(page["background"]))
            assert contrast > 120, name
    assert seen["change", PHONE, "light"]["bar"] > 20


def brightness(color: str) -> float:
    """0 to 255, of a computed colour: ``rgb(…)``, ``oklch(…)``, or ``color(srgb …)`` of a mix."""
    numbers = [float(each) for each in re.findall(r"[0-9.]+(?:e-?\d+)?", color.partition("(")[2])]
    if color.startswith("oklch("):
        return numbers[0] * 255
    if color.startswith("color("):
        numbers = [each * 255 for each in numbers]
    red, green, blue = numbers[:3]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
