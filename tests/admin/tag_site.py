"""A project for a browser: the admin of tags, with or without another theme, always logged in.

``/measure/?page=…`` shows pages as a phone does, and says how they came out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

SECRET_KEY = "tests"
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    *(["unfold"] if os.environ.get("TAG_SITE_THEME") == "unfold" else []),
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_idgen",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tests.admin.tag_site.logged_in",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.admin.tag_site_urls"
STATIC_URL = "/static/"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("TAG_SITE_DATABASE", ":memory:"),
    }
}
IDGEN = {"SEGMENTS": {"SOURCE": {"OPTIONS": {"history": True}}}}

PHONE = 375
MEASURE = """<!doctype html><title>measure</title><pre id="found">waiting</pre><script>
const pages = PAGES, found = {};
const look = (frame) => {
  const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
  const bar = page.querySelector(".idgen-chart-bar");
  const results = page.querySelector("#changelist-form .results");
  const words = page.querySelector(".idgen p, .idgen");
  const shade = (node, what) => node && view.getComputedStyle(node)[what];
  const light = shade(words, "color");
  root.classList.add("dark"); root.dataset.theme = "dark";
  const buttons = [...page.querySelectorAll(".idgen-button")];
  return {
    title: page.title,
    overflow: root.scrollWidth - root.clientWidth,
    out_of_sight: results && results.scrollWidth - results.clientWidth,
    bars: page.querySelectorAll(".idgen-chart-bar").length,
    bar: bar && bar.getBoundingClientRect().height,
    light, dark: shade(words, "color"),
    stacked: [...page.querySelectorAll(".idgen-stacked")].map(
      (each) => each.parentNode.scrollWidth - each.parentNode.clientWidth),
    lowest: Math.min(...buttons.map((each) => each.getBoundingClientRect().height)),
    steps: page.querySelectorAll("input[name$=-step]:not([type=hidden])").length,
  };
};
const next = () => {
  const url = pages.shift();
  if (!url) { document.getElementById("found").textContent = JSON.stringify(found); return; }
  const frame = document.createElement("iframe");
  frame.width = WIDTH; frame.height = 800; frame.src = url;
  frame.onload = () => { found[url] = look(frame); frame.remove(); next(); };
  document.body.append(frame);
};
next();
</script>"""


def measure(request: HttpRequest) -> HttpResponse:
    pages = json.dumps(request.GET.getlist("page"))
    width = str(int(request.GET.get("width", PHONE)))
    return HttpResponse(MEASURE.replace("PAGES", pages).replace("WIDTH", width))


def logged_in(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    def handle(request: HttpRequest) -> Any:
        from django.contrib.auth.models import User

        request.user = User.objects.get()
        return get_response(request)

    return handle
