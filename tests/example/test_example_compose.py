"""The example's compose file: Docker is not at hand here, but what it names is."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

EXAMPLE = Path(__file__).parents[2] / "example_project"
COMPOSE = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())


def test_the_files_that_it_mounts_and_copies_are_there() -> None:
    """Each path on the host's side of a volume, and each source in the Dockerfile."""
    volumes = [
        each for service in COMPOSE["services"].values() for each in service.get("volumes", ())
    ]
    assert len(volumes) == 5
    for volume in volumes:
        assert (EXAMPLE / volume.split(":")[0]).is_file(), volume
    copied = re.findall(r"^COPY (.+) \S+$", (EXAMPLE / "Dockerfile").read_text(), re.MULTILINE)
    for path in " ".join(copied).split():
        assert (EXAMPLE.parent / path).exists(), path


def test_the_settings_read_each_variable_that_it_sets() -> None:
    """A variable that nothing reads would be a slip."""
    text = "".join(path.read_text() for path in (EXAMPLE / "shop").glob("*.py"))
    for name in COMPOSE["x-shop"]["environment"]:
        assert name in text or name == "DJANGO_SUPERUSER_PASSWORD", name


def test_prometheus_sends_the_token_that_the_shop_wants() -> None:
    """Both files have the same secret."""
    scraped = yaml.safe_load((EXAMPLE / "monitoring" / "prometheus.yml").read_text())
    (job,) = scraped["scrape_configs"]
    token = COMPOSE["x-shop"]["environment"]["SHOP_METRICS_TOKEN"]
    assert job["authorization"]["credentials"] == token
