"""Take the screenshots of the admin for these pages: ``python docs/screenshots.py``.

It starts the example project on a temporary database with made-up data, looks at its admin with
Chromium (on Debian: ``apt-get install chromium``), and writes ``docs/screenshots/*.png``: each page
in the light and in the dark theme. Run it in an environment that has django-idgen.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
THEMES = {"dark": "0", "light": "1"}
"""By name, what Chromium calls them."""
WIDTH = 1280
LARGEST = 150_000
"""Bytes of a picture."""
PATIENCE = 60

PAGES = {
    "tags": ("leafalloc/", 800),
    "tag": ("leafalloc/order.number/change/", 1120),
    "workers": ("workerlease/", 860),
    "decode": ("decode/?id={id}", 840),
}
"""By the name of the picture: an address below the admin of django_idgen, and a height."""

SETTINGS = """
from pathlib import Path
from shop.settings import *

DATABASES["default"]["NAME"] = str(Path(__file__).with_name("shop.sqlite3"))
ALLOWED_HOSTS = ["127.0.0.1"]
IDGEN["SEGMENTS"]["SOURCE"] = {"OPTIONS": {"history": True}}
MIDDLEWARE.append("screens.logged_in")

def logged_in(view):
    def answer(request):
        from django.contrib.auth import get_user_model
        request.user = get_user_model().objects.get()
        return view(request)
    return answer
"""
"""The settings of the example, in a module ``screens``; everybody is logged in."""

DATA = """
import math, random
from datetime import timedelta
from django.contrib.auth import get_user_model
from django.utils import timezone
from django_idgen import generators
from django_idgen.models import LeafAlloc, SegmentHistory, WorkerLease

get_user_model().objects.create_superuser("ada", "", "x")
random.seed(7)
now = timezone.now()

def holder(number, program="gunicorn"):
    return f"web-{number % 4 + 1}:{1000 + 17 * number} {program}"

# Name, next free id, step, ids a second, seconds since the last fetch, ids of that fetch.
for name, next_id, step, rate, ago, ids in (
    ("customer", 48_101, 100, 0.02, 3000, 100),
    ("order.number", 8_214_001, 1000, 14.2, 80, 8000),
    ("parcel", 1_204_501, 500, 2.4, 140, 2000),
    ("parcel.label", 65_730_001, 10_000, 310.0, 30, 160_000),
    ("refund", 1, 100, 0.0, None, 0),
    ("return", 9_401, 100, 0.004, 20_000, 100),
    ("voucher.2024", 700_001, 100, 0.0, 86_400 * 40, 100),
):
    LeafAlloc.objects.update_or_create(biz_tag=name, defaults=dict(
        max_id=next_id, step=step, rate=rate, fetched_ids=ids, paused=name == "voucher.2024",
        fetched_at=ago and now - timedelta(seconds=ago), holder=holder(5) if ago else "",
        description={"order.number": "On each order"}.get(name, ""),
    ))

stop, at, rows = 8_214_001, now - timedelta(seconds=80), []
while at > now - timedelta(days=1):
    hour = at.hour + at.minute / 60
    busy = 0.3 + max(0.0, math.sin((hour - 6) / 24 * 2 * math.pi)) + 0.2 * random.random()
    count = random.choice((4000, 8000, 8000))
    rows.append(SegmentHistory(tag="order.number", start=stop - count, stop=stop,
        holder=holder(random.randrange(8)), taken_at=at))
    stop, at = stop - count, at - timedelta(seconds=450 / busy * random.uniform(0.6, 1.4))
SegmentHistory.objects.bulk_create(rows)

number = generators["default"].next_id()
own = WorkerLease.objects.get()
for place in range(14):
    worker = (place * 37 + 6) % 300
    ago = {3: 118, 8: 4000}.get(place, random.randrange(3, 58))
    WorkerLease.objects.update_or_create(id=f"{own.namespace}/{worker}", defaults=dict(
        namespace=own.namespace, worker=worker, token=f"{place:032x}", generation=own.generation,
        start=own.start, until=own.until - ago * 1000, protocol=own.protocol,
        holder=holder(place, "celery" if place % 3 == 2 else "gunicorn"),
        acquired_at=now - timedelta(minutes=random.randrange(9, 900)),
        seen_at=now - timedelta(seconds=ago),
        clock_offset_us=random.choice((-9000, -800, 400, 1200, 3000)),
    ))
print(number)
"""


def main() -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("There is no Chromium. Install it, or put it on the PATH.")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "screens.py").write_text(SETTINGS, encoding="utf-8")
        django(place, "migrate", "-v0")
        number = django(place, "shell", "-v0", "-c", DATA).split()[-1]
        url, server = started(place)
        try:
            for name, (path, height) in PAGES.items():
                for theme in THEMES:
                    address = f"{url}/admin/django_idgen/{path.format(id=number)}"
                    take(browser, place, address, theme, height, PICTURES / f"{name}-{theme}.png")
        finally:
            server.terminate()
            server.wait(PATIENCE)


def environment(place: Path) -> dict[str, str]:
    paths = (str(place), str(HERE.parent / "example_project"))
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "screens",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def django(place: Path, *words: str) -> str:
    """Run a management command; what it prints."""
    command = [sys.executable, "-m", "django", *words]
    done = subprocess.run(
        command, env=environment(place), stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def started(place: Path) -> tuple[str, subprocess.Popen[bytes]]:
    """The address of the example project, once its server answers."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [
        sys.executable,
        "-m",
        "django",
        "runserver",
        "--noreload",
        url.removeprefix("http://"),
    ]
    server = subprocess.Popen(
        command, env=environment(place), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{url}/admin/", timeout=PATIENCE).close()
        except OSError:
            time.sleep(0.2)
        else:
            return url, server
    server.kill()
    sys.exit("The example project did not start.")


def take(browser: str, place: Path, address: str, theme: str, height: int, picture: Path) -> None:
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--lang=en",
        f"--user-data-dir={place / 'profile'}",
        "--virtual-time-budget=5000",
        f"--blink-settings=preferredColorScheme={THEMES[theme]}",
        f"--window-size={WIDTH},{height}",
        f"--screenshot={picture}",
    ]
    subprocess.run([browser, *flags, address], check=True, capture_output=True, timeout=PATIENCE)
    size = picture.stat().st_size
    print(f"{picture.relative_to(HERE.parent)}: {size // 1000} kB")
    if size > LARGEST:
        sys.exit(f"{picture.name} is larger than {LARGEST // 1000} kB: make it less high.")


if __name__ == "__main__":
    main()
