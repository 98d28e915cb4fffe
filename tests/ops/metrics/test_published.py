"""The dashboard and the alert rules in docs/: they ask for what there is, and hold together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_idgen.ops.metrics.definitions import DERIVED, PREFIX, PROCESS, SHARED

from .samples import Listed, listed

yaml = pytest.importorskip("yaml")

DOCS = Path(__file__).parents[3] / "docs"
ALL = listed(PROCESS) + listed(DERIVED) + listed(SHARED)
SERIES: dict[str, Listed] = {
    each.name + ending: each
    for each in ALL
    for ending in (("_bucket", "_sum", "_count") if each.kind == "histogram" else ("",))
}
SELECTOR = re.compile(rf"\b({PREFIX}\w+)(?:\{{([^}}]*)\}})?")


def rules() -> list[dict[str, Any]]:
    found = yaml.safe_load((DOCS / "prometheus-alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in found["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return dict(json.loads((DOCS / "grafana-dashboard.json").read_text(encoding="utf-8")))


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    for rule in rules():
        yield rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard()["templating"]["list"]:
        yield variable.get("definition", "")


def test_what_is_asked_for_is_told_with_these_labels() -> None:
    """No name in an expression is misspelt, and no label is one that the metric doesn't have."""
    seen = set()
    for expression in expressions():
        for name, matchers in SELECTOR.findall(expression):
            assert name in SERIES, expression
            seen.add(SERIES[name].name)
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert labels <= {"job", "instance", *SERIES[name].labels}, expression
    unasked = {each.name.removeprefix(PREFIX) for each in ALL if each.name not in seen}
    # The panel does the division; the others are in no panel, and in no alert.
    assert unasked == {
        "segment_buffer_seconds",
        "segment_ids_given_back_total",
        "segment_issue_rate",
        "tag_segment_seconds",
    }


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Lower case, one prefix, base units, no kind in the name."""
    for each in ALL:
        name = each.name.removesuffix("_total") if each.kind == "counter" else each.name
        assert re.fullmatch(rf"{PREFIX}[a-z]+(_[a-z]+)*", name)
        assert not name.endswith(("_total", "_ms", "_count", "_gauge", "_counter"))
        assert each.help.endswith(".")


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    """With a time that it has to hold, a severity, a summary, and a description."""
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert re.fullmatch(r"Idgen[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert all(rule["annotations"].values())
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}


def test_every_panel_has_a_unit_and_a_place_of_its_own() -> None:
    """So that the dashboard can be imported as it is, and read."""
    found = dashboard()
    assert found["templating"]["list"][0]["type"] == "datasource"
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        shard = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(shard["x"], shard["x"] + shard["w"])
            for y in range(shard["y"], shard["y"] + shard["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    for panel in panels():
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source["uid"] == "${datasource}" for source in sources)
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
