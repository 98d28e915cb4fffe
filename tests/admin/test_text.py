"""Rates, durations and drawings as people read them."""

from __future__ import annotations

import datetime
import re

from django.test import override_settings
from django.utils import translation

from django_idgen.admin.chart import drawn
from django_idgen.admin.text import duration_text, next_fetch_text, rate_text
from django_idgen.ops.tags.usage import Bucket

YEAR, ENDLESS = 31_557_600, float("inf")


def test_rates_and_durations_are_said_as_people_say_them() -> None:
    """By the second, hour or day; with one figure and a unit; never with separators."""
    rates = (0.0, 12.34, 51234.0, 0.2334, 3 / 86400, 1e-9, ENDLESS)
    with override_settings(USE_THOUSAND_SEPARATOR=True):
        assert [rate_text(each) for each in rates] == [
            "–",
            "12.3 / s",
            "51234 / s",
            "840 / h",
            "3 / day",
            "less than 1 / day",
            "–",
        ]
        for seconds, words in (
            (None, "–"),
            (ENDLESS, "–"),
            (0.4, "0 s"),
            (59.6, "1 min"),
            (240, "4 min"),
            (3599, "1 h"),
            (3 * 86400, "3 days"),
            (1000 * 86400, "3 years"),
            (292e6 * YEAR, "over 1000 years"),
        ):
            assert duration_text(seconds) == words


def test_a_fetch_that_is_overdue_is_expected_any_moment() -> None:
    """Not in 0 seconds; an unknown one has a dash."""
    assert [next_fetch_text(each) for each in (None, 0.0, 240.0)] == ["–", "any moment", "in 4 min"]


def test_a_chart_has_room_for_its_highest_bar() -> None:
    """Each bar is within the picture, below a round number; numbers have points anywhere."""
    start = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
    for most, top in ((0, 1), (1, 1), (3, 3), (99, 100), (101, 200), (12_345, 20_000)):
        counts = [0, most, most // 2, 1 if most else 0]
        with translation.override("de"), override_settings(USE_THOUSAND_SEPARATOR=True):
            chart = drawn([Bucket(start, 60.0, count) for count in counts])
        assert chart["top"] == top
        assert len(chart["bars"]) == sum(count > 0 for count in counts)
        assert all(1 <= float(bar["height"]) <= 100 for bar in chart["bars"])
        assert [bar["x"] for bar in chart["bars"]] == [at for at, ids in enumerate(counts) if ids]
        assert chart["width"] == len(counts)
        assert all(re.search(rf": {count}\b", str(chart["bars"])) for count in counts if count)
        assert bool(chart["summary"]) is bool(most)
