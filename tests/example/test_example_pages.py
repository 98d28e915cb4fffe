"""The example project in a real browser, and its API as a client sees it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from django_idgen.core.clock import SYSTEM_CLOCK
from tests import servers, warm
from tests.servers import free_port

MANAGE = Path(__file__).parents[2] / "example_project" / "manage.py"
PATIENCE = 60.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Without these a browser on a closed network asks for its maker's hosts all the time.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
]
AN_ORDER = """
from decimal import Decimal
from orders.models import Customer, Order, OrderLine
ada = Customer.objects.create(name="Ada")
made = Order.objects.bulk_create([Order(customer=ada) for _ in range(3)])
# One that JavaScript would show wrong: it writes as few digits of a number as Python does.
order = next(each for each in made if Decimal(repr(float(each.pk))) != each.pk)
OrderLine.objects.create(order=order, article="tea")
print("order", order.pk, "line", order.lines.get().pk)
"""


class Shop(NamedTuple):
    url: str
    order: int
    line: int

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return answer.read().decode()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The example as ``runserver`` serves it, with an order of one line."""
    with served(
        tmp_path_factory.mktemp("shop"), ["migrate", "-v0"], ["shell", "-v0", "-c", AN_ORDER]
    ) as (url, said):
        ids = re.search(r"order (\d+) line (\d+)", said)
        assert ids is not None, said
        yield Shop(url, int(ids[1]), int(ids[2]))


@contextmanager
def served(directory: Path, *commands: list[str]) -> Iterator[tuple[str, str]]:
    """The address of the example on a database in ``directory``, and what its last command said."""
    port = free_port()
    environment = {
        **os.environ,
        "SHOP_DATABASE_URL": f"sqlite://{directory}/shop.sqlite3",
        "PYTHONUNBUFFERED": "1",
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)

    def manage(*words: str) -> warm.Process:
        return warm.Process(
            [str(MANAGE), *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    said = ""
    for words in commands:
        process = manage(*words)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    server = manage("runserver", f"127.0.0.1:{port}", "--noreload")
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(Shop(url, 0, 0), server)
        yield url, said
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


def _wait_for(shop: Shop, server: warm.Process) -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    while SYSTEM_CLOCK.stopwatch() < deadline and server.poll() is None:
        try:
            shop.get("/")
        except urllib.error.URLError:
            SYSTEM_CLOCK.sleep(0.1)
        else:
            return
    server.terminate()
    pytest.fail(f"runserver did not answer: {server.communicate()[0]}")


def dump(url: str, profile: Path, *, budget: int = 10_000) -> str:
    """The page at ``url`` as a headless browser has it once its scripts have run.

    They have ``budget`` milliseconds, by a clock that stands while the network is waited for.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        servers.absent(
            "There is no Chromium. Install it (on Debian: apt-get install chromium), or leave "
            "this test out."
        )
    done = subprocess.run(
        [
            browser, *FLAGS, f"--user-data-dir={profile}", f"--virtual-time-budget={budget}",
            "--dump-dom", url,
        ],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=True,
    )  # fmt: skip
    return done.stdout


def cell(page: str, name: str) -> str:
    found = re.search(rf'id="{name}">([^<]*)<', page)
    assert found is not None, page
    return found[1]


@pytest.mark.long
def test_a_visitor_can_open_each_link_of_the_front_page(shop: Shop) -> None:
    """No link leads a visitor who has not logged in to a refusal."""
    links = re.findall(r'<a href="(/[^"]*)"', shop.get("/"))
    assert "/admin/" in links
    for link in links:
        shop.get(link)


def test_a_browser_shows_the_id_that_the_database_has(shop: Shop, tmp_path: Path) -> None:
    """It fetches an order from the API; as a number the id would have been another one."""
    page = dump(f"{shop.url}/orders/{shop.order}/", tmp_path)
    assert cell(page, "stored") == str(shop.order)
    assert cell(page, "given") == str(shop.order)
    assert cell(page, "number") != str(shop.order)


def test_the_shop_s_api_has_strings_where_there_are_ids(shop: Shop) -> None:
    """Undeclared, in nested serializers too, in lists and in single objects."""
    one = json.loads(shop.get(f"/api/orders/{shop.order}/"))
    assert one["id"] == str(shop.order)
    assert [line["id"] for line in one["lines"]] == [str(shop.line)]
    listed = json.loads(shop.get("/api/orders/"))["results"]
    assert str(shop.order) in [order["id"] for order in listed]


@pytest.mark.long
def test_the_live_page_shows_each_order_and_leads_to_it(shop: Shop, tmp_path: Path) -> None:
    """Its script fetches the orders, links each, and takes the newest id apart."""
    page = dump(shop.url, tmp_path)
    assert f'href="/orders/{shop.order}/"' in page
    assert cell(page, "last-order").isdecimal()
    assert cell(page, "last-customer").startswith("cus_")
    assert cell(page, "part-worker").isdecimal()
    assert re.fullmatch(r"none yet|\d+", cell(page, "last-parcel"))  # the order has none
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        shop.get("/orders/1/")
    caught.value.close()


@pytest.mark.long
def test_the_live_page_says_that_tables_are_missing(tmp_path: Path) -> None:
    """Where the server was started before "migrate", a line says what to run."""
    with served(tmp_path) as (url, _):
        page = dump(url, tmp_path / "profile")
    assert "If a table is missing, run: python manage.py migrate" in page
    assert "Loading" not in page


def test_the_button_places_orders(shop: Shop) -> None:
    """Each is saved with its lines and its parcel."""
    before = json.loads(shop.get("/live.json"))["totals"]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(shop.url, timeout=PATIENCE) as answer:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', answer.read().decode())
    assert token is not None
    sent = f"csrfmiddlewaretoken={token[1]}&count=3".encode()
    opener.open(f"{shop.url}/place", sent, timeout=PATIENCE).close()
    after = json.loads(shop.get("/live.json"))["totals"]
    assert {name: after[name] - before[name] for name in after} == {
        "customer": 3,
        "order": 3,
        "parcel": 3,
    }


def test_the_id_service_is_closed_to_strangers(shop: Shop) -> None:
    """It is mounted, but a request without a token or a login gets no id."""
    with pytest.raises(urllib.error.HTTPError, match=r"401|403") as caught:
        shop.get("/idgen/generators/default/ids")
    caught.value.close()
