"""Who looks after the sequences: the scheduler, and the doctor."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_idgen import tasks
from django_idgen.core.errors import UpkeepFailed
from django_idgen.models import LeafAlloc
from django_idgen.ops.native import extend_native
from tests.app.models import Invoice
from tests.ops.doctor.asking import doctor, findings
from tests.ops.native.conftest import TAG, Route, Shop, unless_busy
from tests.server_tools import at_once, unreachable

NAME = "app_invoice.id"


def half_used(shop: Shop) -> None:
    shop.command(TAG, "--length", "100")
    shop.insert(60)


def put_back(shop: Shop, value: int) -> None:
    """The sequence as an old backup has it."""
    if shop.alias == "postgres":
        shop.sql(f"SELECT setval('{shop.position().name}', {value}, false)")
    else:
        shop.sql(f"ALTER SEQUENCE {shop.position().name} RESTART WITH {value}")


def test_the_scheduler_extends_what_is_half_used_up(shop: Shop) -> None:
    """Once; until then it says how much is left. The task and the command do the same."""
    assert extend_native() == {}
    shop.command(TAG, "--length", "100")
    assert extend_native() == {NAME: {"left": 100}}
    shop.insert(60)
    (done,) = tasks.extend_native().values()
    assert "continues to 200" in done["extended"]
    assert extend_native() == {NAME: {"left": 140}}
    assert json.dumps(done)


def test_the_command_for_cron_does_it(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Without Celery."""
    half_used(shop)
    call_command("idgen_upkeep")
    assert '"extended": "app_invoice.id' in capsys.readouterr().out


def test_two_schedulers_at_once(shop: Shop) -> None:
    """One of them extends, the other has nothing to do; or says that it was in use."""
    half_used(shop)

    done = at_once(3, lambda _number: unless_busy(lambda: json.dumps(extend_native())))
    assert sum("extended" in said for said in done) == 1


def test_a_failure_is_told_after_all_was_done(shop: Shop) -> None:
    """A paused tag gives nothing; cron hears of it."""
    half_used(shop)
    LeafAlloc.objects.using(shop.alias).update(paused=True)
    with pytest.raises(UpkeepFailed, match="paused") as failed:
        extend_native()
    assert list(failed.value.done) == [NAME]
    with pytest.raises(CommandError, match="Sequences were not all extended"):
        call_command("idgen_upkeep")


def test_a_database_that_is_away_is_told(shop: Shop) -> None:
    """By its alias."""
    with unreachable(shop.alias), pytest.raises(UpkeepFailed, match=f"database {shop.alias}"):
        extend_native()


def test_databases_without_sequences_are_not_even_asked() -> None:
    """SQLite: no connection is opened for it, and nothing is said."""
    with override_settings(DATABASE_ROUTERS=[Route("default")]):
        assert extend_native() == {}


def test_the_doctor_finds_what_the_scheduler_has_left(shop: Shop) -> None:
    """A warning when half is used up, an error when all is; --fix extends."""
    half_used(shop)
    (found,) = findings("native", database=[shop.alias])
    assert found["severity"] == "warning"
    assert "gives 1 to 100, 40 left." in found["what"]
    code, said = doctor("native", database=[shop.alias], fix=True, yes=True)
    assert "done:" in said
    assert "continues to 200" in said
    assert code == 0
    assert findings("native", database=[shop.alias]) == []
    shop.insert(140)
    (found,) = findings("native", database=[shop.alias])
    assert found["severity"] == "error"


def test_a_sequence_that_was_put_back_leaves_its_segment(shop: Shop) -> None:
    """Rows lie above where it stands: the doctor says so, and --fix gives it another one."""
    half_used(shop)
    put_back(shop, 50)
    (found,) = findings("native", database=[shop.alias])
    assert found["severity"] == "error"
    assert "but the table has id 60, which it would give again" in found["what"]
    doctor("native", database=[shop.alias], fix=True, yes=True)
    assert shop.insert() == [101]


def test_the_scheduler_notices_that_too(shop: Shop) -> None:
    """Though not even a tenth was used."""
    shop.command(TAG, "--length", "100")
    shop.insert(8)
    put_back(shop, 3)
    assert "the table has id 8" in str(extend_native())
    assert shop.insert() == [101]


def test_after_a_failover_it_leaves_its_segment(shop: Shop) -> None:
    """The server that took over may have missed ids; their rows are lost, their copies not."""
    shop.command(TAG, "--length", "100")
    shop.insert(8)
    other = shop.column()
    other._identity = lambda: "another"  # type: ignore[method-assign]
    other._note(shop.position().name)
    assert "another server has taken over" in str(extend_native())
    assert shop.insert() == [101]
    assert "left" in extend_native()[NAME]


def test_a_tag_that_was_put_back_meets_no_sequence(shop: Shop) -> None:
    """Its next fetches would be the sequence's ids: both go on above them."""
    shop.command(TAG, "--length", "100")
    shop.insert(8)
    LeafAlloc.objects.using(shop.alias).filter(pk=TAG).update(max_id=50)
    (found,) = findings("native", database=[shop.alias])
    assert "the tag was reset" in found["what"]
    extend_native()
    assert shop.insert()[0] > 100
    assert Invoice.objects.using(shop.alias).create().pk > shop.position().ids[-1]


def test_after_a_restore_idgen_skip_sees_to_the_sequence(shop: Shop) -> None:
    """What it gave since the backup is in no table any more, but may be elsewhere."""
    half_used(shop)
    put_back(shop, 10)
    shop.sql("DELETE FROM app_invoice WHERE id >= 10")
    out = StringIO()
    call_command("idgen_skip", TAG, yes=True, stdout=out)
    assert "of those before, up to 91 are skipped (as you asked)" in out.getvalue()
    assert shop.insert()[0] > 100
