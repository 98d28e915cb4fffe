"""The admin, and a page that looks at its pages in frames of several widths and themes."""

from __future__ import annotations

import json
from itertools import count

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_idgen import generators, segments

PROBE = """<!doctype html><meta charset="utf-8"><pre id="probe"></pre><script>
const asked = %s, told = [];
const wait = ms => new Promise(done => setTimeout(done, ms));
async function look({url, width, theme}) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 900; frame.src = url;
  const loaded = new Promise(done => frame.onload = done);
  document.body.append(frame);
  await loaded; await wait(200);
  const page = frame.contentDocument, root = page.documentElement;
  root.dataset.theme = theme; root.classList.toggle("dark", theme == "dark");
  await wait(200);
  const view = frame.contentWindow, all = query => [...page.querySelectorAll(query)];
  const align = query => all(query).map(each => view.getComputedStyle(each).textAlign);
  const number = ":is(.idgen-number, [class*=next_free_id], [class*=step_of], [class*=_rate])";
  const bar = page.querySelector(".idgen-bars path");
  const ground = view.getComputedStyle(page.body);
  told.push({url, width, theme, text: page.body.innerText,
    out_of_sight: [root, ...all(".results, .idgen, .idgen table, .readonly")].map(
      each => each.scrollWidth - each.clientWidth),
    color: ground.color, background: ground.backgroundColor,
    fields: all(".idgen-bits th").map(each => each.getBoundingClientRect().width),
    cut: all(".idgen-bits :is(th, td)").filter(each => each.scrollWidth > each.clientWidth).map(
      each => each.innerText),
    numbers: [align("thead " + number), align("tbody " + number)],
    bar: bar && bar.getBoundingClientRect().height,
    lowest: Math.min(...all(".idgen .button").map(each => each.getBoundingClientRect().height)),
  });
  frame.remove();
}
(async () => {
  for (const each of asked) await look(each);
  document.getElementById("probe").textContent = JSON.stringify(told);
})();
</script>"""


POLICY = "Content-Security-Policy"
_serial = count(1)


def probe(request: HttpRequest) -> HttpResponse:
    """Pages named by ``url``, each in every ``width`` and ``theme``: what they look like."""
    asked = [
        {"url": url, "width": int(width), "theme": theme}
        for url in request.GET.getlist("url")
        for width in request.GET.getlist("width")
        for theme in request.GET.getlist("theme")
    ]
    return HttpResponse(PROBE % json.dumps(asked))


def asked(request: HttpRequest) -> HttpResponse:
    """The page of an action on two tags, which takes a POST: as the browser would get it."""
    sent = {**request.GET.dict(), "_selected_action": ["orders", f"{'x' * 60}.still"]}
    found = Client().post("/admin/django_idgen/leafalloc/", sent)
    # Under a theme there is no policy.
    policy = {name: found.headers[name] for name in (POLICY,) if name in found.headers}
    return HttpResponse(found.content, status=found.status_code, headers=policy)


def made(_request: HttpRequest) -> HttpResponse:
    """The page that shows a new token, with its secret, which takes a POST."""
    name = f"{'v' * 50}-{next(_serial)}"
    sent = {"name": name, "tags": "t" * 60, "generators": "", "leases": ""}
    found = Client().post("/admin/django_idgen/accesstoken/add/", sent)
    return HttpResponse(found.content, status=found.status_code)


def take(_request: HttpRequest) -> HttpResponse:
    """Ids of generators and one of a tag: from then on this process holds worker ids."""
    ids = [generators[each].next_id() for each in ("default", "js", "batched")]
    ids.append(segments["orders"].next_id())
    return HttpResponse(json.dumps([str(each) for each in ids]))


urlpatterns = [
    path("admin/", admin.site.urls),
    path("probe/", probe),
    path("asked/", asked),
    path("made/", made),
    path("take/", take),
]
