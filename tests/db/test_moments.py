"""Moments in the columns of a project without time zones."""

from __future__ import annotations

from datetime import UTC, datetime

from django.test import override_settings
from django.utils import timezone

from django_idgen.db.dialects import aware_moment, stored_moment

MOMENT = datetime(2025, 6, 1, 12, 30, tzinfo=UTC)


@override_settings(USE_TZ=False, TIME_ZONE="Asia/Kathmandu")
def test_columns_are_in_the_projects_zone_whatever_is_active() -> None:
    """A page in the zone of its reader writes, reads and compares the same moments."""
    with timezone.override("Pacific/Auckland"):
        stored = stored_moment(MOMENT)
        assert stored == datetime(2025, 6, 1, 18, 15)  # noqa: DTZ001
        assert aware_moment(stored) == MOMENT


@override_settings(USE_TZ=True, TIME_ZONE="Asia/Kathmandu")
def test_with_time_zones_a_moment_is_stored_as_it_is() -> None:
    """Django writes it in the zone of the database."""
    assert stored_moment(MOMENT) is MOMENT
    assert aware_moment(MOMENT) is MOMENT
