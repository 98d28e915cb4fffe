"""The safe change of layout, epoch, registry and worker ids, under real fleets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from tests.doctor.asking import doctor
from tests.doctor.fleet import Fleet, Idgen, fleet, idgen, on_database, on_redis

NEW_LAYOUT = {"LAYOUT": {"time": 40, "worker": 11, "sequence": 12}}


def moved_under_load(tmp_path: Path, alias: str, old: Idgen, new: Idgen, **options: Any) -> Fleet:
    """Old processes take ids while the doctor moves the namespace and new ones start."""
    with fleet(tmp_path) as processes:
        before = processes.start(old)
        for taker in before:
            taker.wait_for(100)
        early = processes.start(new, 1, name="new")
        early[0].wait_for_refusal()
        assert early[0].ids() == []
        with override_settings(IDGEN=new):
            code, words = doctor("settings", database=[alias])
            assert code == 2, words
            code, words = doctor("settings", database=[alias], fix=True, yes=True, **options)
            assert code == 0, words
            assert "All is well" in words
        after = [*early, *processes.start(new, 1, name="new")]
        for taker in after:
            taker.wait_for(100)
        for taker in before:
            taker.wait_for_refusal()
        for taker in after:
            taker.wait_for(100)
    processes.assert_no_repeats()
    assert all(taker.refusals() <= {"NamespaceMismatch", "LeaseExpired"} for taker in before)
    return processes


def test_another_layout(postgres: str, tmp_path: Path) -> None:
    """I1, I8: ids of the new layout begin past all that the old one made, or may yet make."""
    old = idgen(on_database(postgres))
    new = idgen(on_database(postgres), **NEW_LAYOUT)
    moved_under_load(tmp_path, postgres, old, new)


def test_another_epoch(postgres: str, tmp_path: Path) -> None:
    """An earlier epoch makes higher ids."""
    old = idgen(on_database(postgres))
    new = idgen(on_database(postgres), EPOCH="2023-05-01T00:00:00Z")
    moved_under_load(tmp_path, postgres, old, new)


def test_other_worker_ids(mariadb: str, tmp_path: Path) -> None:
    """A range that overlaps with the old one."""
    old = idgen(on_database(mariadb, workers=[0, 4]))
    new = idgen(on_database(mariadb, workers=[1, 5]))
    moved_under_load(tmp_path, mariadb, old, new)


def test_from_the_database_to_redis(postgres: str, redis: str, tmp_path: Path) -> None:
    """And at once: no window of the old fleet has to end first."""
    old = idgen(on_database(postgres, workers=[0, 4]))
    new = idgen(on_redis(redis, postgres, workers=[0, 4]))
    moved_under_load(tmp_path, postgres, old, new)


def test_from_redis_to_the_database(postgres: str, redis: str, tmp_path: Path) -> None:
    """Redis goes on below what the database had lent to it; then it is refused."""
    old = idgen(on_redis(redis, postgres, workers=[0, 4]))
    new = idgen(on_database(postgres, workers=[0, 4]))
    moved_under_load(tmp_path, postgres, old, new)


def test_another_layout_in_redis(mariadb: str, redis: str, tmp_path: Path) -> None:
    """What stands in Redis is begun anew; old processes can't bring it back."""
    old = idgen(on_redis(redis, mariadb))
    new = idgen(on_redis(redis, mariadb), **NEW_LAYOUT)
    moved_under_load(tmp_path, mariadb, old, new)


@pytest.mark.parametrize("there", [True, False])
def test_to_a_fallback_and_back(there: bool, postgres: str, tmp_path: Path) -> None:
    """Both of its registries begin past all that one lent alone, and the other way round."""
    alone = idgen(on_database(postgres, workers=[0, 8]))
    both = idgen(
        {
            "BACKEND": "django_idgen.leases.fallback.FallbackLeases",
            "OPTIONS": {
                "workers": [0, 8],
                "primary": on_database(postgres),
                "secondary": on_database(postgres),
            },
        }
    )
    old, new = (alone, both) if there else (both, alone)
    moved_under_load(tmp_path, postgres, old, new)
