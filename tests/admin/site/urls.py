"""The admin, and a page that looks at its pages in frames of several widths and themes."""

from __future__ import annotations

import json

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
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
  const view = frame.contentWindow, own = page.querySelector(".idgen");
  const style = (selector, name) => {
    const found = page.querySelector(selector);
    return found && view.getComputedStyle(found)[name];
  };
  const cell = page.querySelector("a.idgen-cell"), bar = page.querySelector(".idgen-chart-bar");
  const results = page.querySelector("#changelist-form .results");
  if (cell) cell.focus();
  told.push({url, width, theme,
    title: page.title, own: Boolean(own), text: own ? own.innerText : page.body.innerText,
    overflow: root.scrollWidth - root.clientWidth,
    color: style(".idgen", "color"), background: style(".idgen-card", "backgroundColor"),
    cells: page.querySelectorAll("a.idgen-cell").length,
    focused: Boolean(cell) && page.activeElement === cell,
    outline: cell ? view.getComputedStyle(cell).outlineStyle : null,
    held: style("a.idgen-held", "backgroundColor"), free: style("a.idgen-free", "backgroundColor"),
    fields: [...page.querySelectorAll(".idgen-field")].map(
      each => each.getBoundingClientRect().width),
    out_of_sight: results && results.scrollWidth - results.clientWidth,
    bar: bar && bar.getBoundingClientRect().height,
    stacked: [...page.querySelectorAll(".idgen-stacked")].map(
      each => each.parentNode.scrollWidth - each.parentNode.clientWidth),
    lowest: Math.min(...[...page.querySelectorAll(".idgen-button")].map(
      each => each.getBoundingClientRect().height)),
    steps: page.querySelectorAll("input[name$=-step]:not([type=hidden])").length,
  });
  frame.remove();
}
(async () => {
  for (const each of asked) await look(each);
  document.getElementById("probe").textContent = JSON.stringify(told);
})();
</script>"""


def probe(request: HttpRequest) -> HttpResponse:
    """Pages named by ``url``, each in every ``width`` and ``theme``: what they look like."""
    asked = [
        {"url": url, "width": int(width), "theme": theme}
        for url in request.GET.getlist("url")
        for width in request.GET.getlist("width")
        for theme in request.GET.getlist("theme")
    ]
    return HttpResponse(PROBE % json.dumps(asked))


def take(_request: HttpRequest) -> HttpResponse:
    """An id of a generator and one of a tag: from then on this process holds a worker id."""
    ids = [generators["default"].next_id(), segments["orders"].next_id()]
    return HttpResponse(json.dumps([str(each) for each in ids]))


urlpatterns = [
    path("admin/", admin.site.urls),
    path("probe/", probe),
    path("take/", take),
]
