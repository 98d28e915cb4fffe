"""What a scrape says, as a Prometheus server reads it; and the metrics that there are."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Listed", "Scraped", "listed", "scrape"]

TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True)
class Scraped:
    """The samples of one scrape."""

    text: str

    def samples(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values of the series ``name`` that have ``labels``."""
        return [
            (dict(sample.labels), sample.value)
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == f"django_idgen_{name}" and labels.items() <= sample.labels.items()
        ]

    def sum(self, name: str, **labels: str) -> float:
        return sum(value for _, value in self.samples(name, **labels))

    def one(self, name: str, **labels: str) -> float:
        """The value of the only such series."""
        ((_, value),) = self.samples(name, **labels)
        return value

    def names(self) -> set[str]:
        """Of all series."""
        families = text_string_to_metric_families(self.text)
        return {sample.name for family in families for sample in family.samples}


def scrape(port: int, path: str = "/metrics", timeout: float = 30) -> Scraped:
    """Ask a server on this machine, as Prometheus would."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return Scraped(answer.read().decode())


@dataclass(frozen=True)
class Listed:
    """One metric."""

    name: str
    """As its series are named, but for the parts of a histogram."""
    kind: str
    help: str
    labels: tuple[str, ...]


def listed(group: Iterable[Any]) -> list[Listed]:
    """The metrics of a group of :mod:`django_idgen.ops.metrics.definitions`."""
    if isinstance(group, dict):
        return [Listed(f"django_idgen_{name}", "gauge", *rest) for name, rest in group.items()]
    return [
        Listed(
            f"{each.name}_total" if each.type == "counter" else each.name,
            each.type,
            each.documentation,
            tuple(metric._labelnames),
        )
        for metric in group
        for each in metric.describe()
    ]
