"""The safe change of layout, epoch, registry and worker ids, under real fleets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import generators
from django_idgen.core.errors import NamespaceMismatch, RegistryUnavailable
from django_idgen.leases.server_ledger import ServerLedger
from django_idgen.models import NamespaceRecord
from tests.doctor.asking import doctor, findings
from tests.doctor.fleet import Fleet, Idgen, fleet, idgen, on_database, on_redis

NEW_LAYOUT = {"LAYOUT": {"time": 40, "worker": 10, "sequence": 13, "tick": 0.002}}
"""Its ids are about as high as those of the standard layout at the same time: they would meet."""
ALL = [0, 3]
"""The worker ids: as many as there are old processes, so that the new ones need the same."""


def moved_under_load(tmp_path: Path, alias: str, old: Idgen, new: Idgen, **options: Any) -> Fleet:
    """Old processes take ids while the doctor moves the namespace and new ones start."""
    with fleet(tmp_path) as processes:
        before = processes.start(old, 3)
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
        early[0].wait_for(100)
        for taker in before:
            taker.wait_for_refusal()
        early[0].wait_for(100)
    processes.assert_no_repeats()
    assert all(taker.refusals() <= {"NamespaceMismatch", "LeaseExpired"} for taker in before)
    return processes


def test_another_layout(postgres: str, tmp_path: Path) -> None:
    """I1, I8: ids of the new layout begin past all that the old one made, or may yet make."""
    old = idgen(on_database(postgres, workers=ALL))
    new = idgen(on_database(postgres, workers=ALL), **NEW_LAYOUT)
    moved_under_load(tmp_path, postgres, old, new)


def test_another_epoch(postgres: str, tmp_path: Path) -> None:
    """A second earlier: the new ids of now are the old ones of a second later."""
    old = idgen(on_database(postgres, workers=ALL))
    new = idgen(on_database(postgres, workers=ALL), EPOCH="2024-12-31T23:59:59Z")
    moved_under_load(tmp_path, postgres, old, new)


def test_other_worker_ids(mariadb: str, tmp_path: Path) -> None:
    """A range that overlaps with the old one."""
    old = idgen(on_database(mariadb, workers=ALL))
    new = idgen(on_database(mariadb, workers=[1, 4]))
    moved_under_load(tmp_path, mariadb, old, new)


def test_from_the_database_to_redis(postgres: str, redis: str, tmp_path: Path) -> None:
    """And at once: no window of the old fleet has to end first."""
    old = idgen(on_database(postgres, workers=ALL))
    new = idgen(on_redis(redis, postgres, workers=ALL))
    moved_under_load(tmp_path, postgres, old, new)


def test_from_redis_to_the_database(postgres: str, redis: str, tmp_path: Path) -> None:
    """Redis goes on below what the database had lent to it; then it is refused."""
    old = idgen(on_redis(redis, postgres, workers=ALL))
    new = idgen(on_database(postgres, workers=ALL))
    moved_under_load(tmp_path, postgres, old, new)


def test_another_layout_in_redis(mariadb: str, redis: str, tmp_path: Path) -> None:
    """What stands in Redis is begun anew; old processes can't bring it back."""
    old = idgen(on_redis(redis, mariadb, workers=ALL))
    new = idgen(on_redis(redis, mariadb, workers=ALL), **NEW_LAYOUT)
    moved_under_load(tmp_path, mariadb, old, new)


def _fallback(alias: str) -> Idgen:
    parts = {name: on_database(alias) for name in ("primary", "secondary")}
    leases = "django_idgen.leases.fallback.FallbackLeases"
    return idgen({"BACKEND": leases, "OPTIONS": {"workers": [0, 4], **parts}})


@pytest.mark.parametrize("there", [True, False])
def test_to_a_fallback_and_back(there: bool, postgres: str, tmp_path: Path) -> None:
    """Both of its registries begin past all that one lent alone, and the other way round."""
    alone = idgen(on_database(postgres, workers=[0, 4]))
    both = _fallback(postgres)
    old, new = (alone, both) if there else (both, alone)
    moved_under_load(tmp_path, postgres, old, new)


def test_to_another_database(postgres: str, mariadb: str, tmp_path: Path) -> None:
    """The new one begins past the record in the old one, which lends to nobody any more."""
    old = idgen(on_database(postgres, workers=[0, 1]), window=15)
    new = idgen(on_database(mariadb, workers=[0, 1]), window=15)
    with fleet(tmp_path) as processes:
        (before,) = processes.start(old, 1)
        before.wait_for(100)
        with override_settings(IDGEN=new):
            code, words = doctor("settings", fix=True, yes=True, database=[mariadb])
            assert (code, f"--moved-from {postgres}" in words) == (1, True), words
            given = {"fix": True, "yes": True, "moved_from": [postgres]}
            code, words = doctor("settings", database=[mariadb], **given)
            assert code == 0, words
            assert f"database '{postgres}': closed" in words
        (after,) = processes.start(new, 1, name="new")
        for taker in (before, after):  # it uses up the window that it has
            taker.wait_for(500)
    processes.assert_no_repeats()


@pytest.mark.parametrize("broken_at", [2, 3])
def test_it_goes_on_where_it_was_broken_off(
    broken_at: int, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two of its transactions nobody is let in; the next run ends it."""
    old, new = idgen(on_database(postgres, workers=[0, 4])), _fallback(postgres)
    with fleet(tmp_path) as processes:
        (before,) = processes.start(old, 1)
        before.wait_for(100)
        whole, calls = ServerLedger.rewrite, []

        def broken(self: ServerLedger, change: Any) -> Any:
            calls.append(self)
            if len(calls) == broken_at:
                raise RegistryUnavailable("the power went")
            return whole(self, change)

        with override_settings(IDGEN=new):
            monkeypatch.setattr(ServerLedger, "rewrite", broken)
            code, words = doctor("settings", fix=True, yes=True, database=[postgres])
            assert code == 2, words
            assert "the power went" in words
            monkeypatch.undo()
            with pytest.raises(NamespaceMismatch, match="closed"):
                generators["default"].next_id()
            before.wait_for_refusal()
            code, words = doctor("settings", fix=True, yes=True, database=[postgres])
            assert code == 0, words
        (after,) = processes.start(new, 1, name="new")
        after.wait_for(100)
    processes.assert_no_repeats()


def test_static_worker_ids(tmp_path: Path, postgres: str) -> None:
    """Not under a running process, nor unless all others are known to have stopped."""
    marks = tmp_path / "marks"
    marks.mkdir()
    static = {
        "BACKEND": "django_idgen.leases.static.StaticLeases",
        "OPTIONS": {"workers": [0, 2], "directory": str(marks)},
    }
    old, new = idgen(static), idgen(static, **NEW_LAYOUT)
    for setting in (old, new):
        setting["SEGMENTS"] = {"SOURCE": on_database(postgres)}
    with fleet(tmp_path) as processes:
        processes.start(old, 1)[0].wait_for(100)
        with override_settings(IDGEN=new):
            code, words = doctor("settings", fix=True, yes=True, database=[postgres])
            assert (code, "not without --others-stopped" in words) == (2, True), words
            given: dict[str, Any] = {"fix": True, "yes": True, "others_stopped": True}
            code, words = doctor("settings", database=[postgres], **given)
            assert (code, "running process of this host" in words) == (2, True), words
            processes.stop("old")
            processes.takers[0].end()
            code, words = doctor("settings", database=[postgres], **given)
            assert code == 0, words
        after = processes.start(new, 2, name="new")
        for taker in after:
            taker.wait_for(100)
    processes.assert_no_repeats()


def test_declining_moves_nothing(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the settings that differ, what it would do, and asks."""
    with override_settings(IDGEN=idgen(on_database(postgres))):
        generators["default"].next_id()
    before = NamespaceRecord.objects.using(postgres).values().get()
    monkeypatch.setattr("builtins.input", lambda _prompt: "n")
    with override_settings(IDGEN=idgen(on_database(postgres), **NEW_LAYOUT)):
        code, words = doctor("settings", database=[postgres], fix=True)
    assert code == 2
    assert "fields=[['time', 41]" in words
    assert "Nothing was changed" in words
    assert NamespaceRecord.objects.using(postgres).values().get() == before


def test_settings_that_agree_are_nothing_to_tell(server_alias: str) -> None:
    """Nor are those of a namespace that was never used."""
    with override_settings(IDGEN=idgen(on_database(server_alias))):
        assert findings("settings", database=[server_alias]) == []
        generators["default"].next_id()
        assert findings("settings", database=[server_alias]) == []
