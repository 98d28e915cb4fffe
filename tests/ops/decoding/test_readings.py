"""What a pasted text is read as, what an id is to each generator and tag, and who held it."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

import pytest
from django.apps import apps
from django.db import connections, transaction
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_idgen import generators, segments
from django_idgen.core.encoding import ALPHABETS, TextForm
from django_idgen.core.errors import InvalidId, InvalidTag
from django_idgen.core.layout import BitLayout
from django_idgen.core.segment import MAX_ID
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.ops.decoding import parts_document, readings, spellings
from django_idgen.ops.decoding.rendering import drawn_bits
from django_idgen.process import maps
from django_idgen.process.factory import build_generator
from django_idgen.settings.config import SettingsError
from tests import servers
from tests.app.models import Customer
from tests.ops.doctor.asking import mended, without
from tests.places import alias as alias
from tests.places import empty_place as empty_place
from tests.places import make_tables, on_every_database
from tests.tiers import long

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
TWO = {
    "GENERATORS": {
        "default": {"LAYOUT": {"time": 41, "worker": {"rack": 4, "host": 6}, "sequence": 12}},
        "uid": {"LAYOUT": "uid", "LEASES": {"OPTIONS": {"workers": [0, 100]}}},
        "short": {"LAYOUT": {"time": 30, "worker": 2, "sequence": 2, "tick": 1}},
    }
}


def packed(
    alias_: str = "default", when: datetime = NOW, worker: int = 3, sequence: int = 7
) -> int:
    layout = maps.generator_settings(alias_).layout
    tick = (int(when.timestamp()) * 1_000_000 - layout.epoch_us) // layout.tick_us
    return layout.pack(tick, worker, sequence)


@pytest.fixture(autouse=True)
def _settings() -> Any:
    with override_settings(IDGEN=TWO):
        yield
    maps.reset()


def by_alias(number: object, **wanted: Any) -> dict[str, Any]:
    (found,) = readings(number, now=NOW + timedelta(days=1), offline=True, **wanted)
    assert json.loads(json.dumps(found)) == found
    return {each["generator"]: each for each in found["generators"]}


# --- generators -----------------------------------------------------------------------------


def test_each_generator_says_what_it_takes_an_id_for() -> None:
    """Its time, worker and parts, sequence; each field with its bits, place and value."""
    found = by_alias(packed(worker=0b0010_000011))["default"]
    assert found["plausible"]
    parts = found["parts"]
    assert datetime.fromisoformat(parts["time"]) == NOW
    assert (parts["worker"], parts["sequence"]) == (131, 7)
    assert [tuple(field.values())[:5] for field in found["fields"]] == [
        ("time", 41, 22, parts["tick"], f"{parts['tick']:041b}"),
        ("worker", 10, 12, 131, "0010000011"),
        ("sequence", 12, 0, 7, "000000000111"),
    ]
    assert [tuple(part.values()) for part in found["fields"][1]["parts"]] == [
        ("rack", 4, 18, 2, "0010"),
        ("host", 6, 12, 3, "000011"),
    ]


def test_what_can_hardly_be_its_id_is_doubted() -> None:
    """Of the future, of the very beginning, of a worker id not lent, past its bits.

    Plausible generators come first, whatever their order in the settings.
    """
    later = packed(when=NOW + timedelta(days=2))
    assert "future: 2026-06-03T12:00:00Z" in by_alias(later)["default"]["doubts"][0]
    assert "epoch" in by_alias(5)["default"]["doubts"][0]
    assert "0 to 99" in by_alias(packed("uid", worker=100))["uid"]["doubts"][0]
    short = by_alias(packed())["short"]
    assert short["parts"] is None
    assert "34 bits" in short["doubts"][0]
    # A stamp may be ahead of the time by a few windows, after a loss.
    assert by_alias(packed(when=NOW + timedelta(days=1, seconds=360)))["default"]["plausible"]
    (found,) = readings(packed("uid"), now=NOW, offline=True)
    assert found["generators"][0]["generator"] == "uid"


def test_a_prefix_leaves_only_the_model_s_own_generator() -> None:
    """And no tag: its field takes none."""
    text = Customer(pk=packed()).get_id_display()
    (found,) = readings(text, now=NOW, offline=True)
    assert [each["generator"] for each in found["generators"]] == ["default"]
    assert found["tags"] == []


def test_one_generator_or_tag_can_be_asked_for() -> None:
    """An unknown one is an error with those that there are."""
    assert list(by_alias(packed(), generator="uid")) == ["uid"]
    with pytest.raises(SettingsError, match="'default', 'uid', 'short'"):
        readings(5, generator="nope")
    with pytest.raises(InvalidTag):
        readings(5, tag="x" * 200)


def test_bits_are_drawn_to_scale() -> None:
    """A column a bit; never wider than told."""
    fields = by_alias(packed())["default"]["fields"]
    wide = drawn_bits(fields, 80)
    assert wide[1] == f"|{'-' * 41}|{'-' * 10}|{'-' * 12}|"
    assert wide[2].split() == [field["digits"] for field in fields]
    assert wide[3].split() == ["time", "41", "worker", "10", "sequence", "12"]
    assert wide[0].split() == ["62", "21", "11", "0"]
    assert max(map(len, wide)) == 67
    assert drawn_bits(fields, 67) == wide
    assert drawn_bits(fields, 66) == []


@on_every_database
def test_who_held_the_worker_id_then_is_told(alias: str, request: Any) -> None:
    """By the worker id's present lease; of any other time the log has to be asked."""
    options = {"database": alias}
    name = request.node.nodeid[-100:]
    entry = {"NAMESPACE": name, "LEASES": {"OPTIONS": options}, "OPTIONS": {"holder": "web-1"}}
    with override_settings(IDGEN={"GENERATORS": {"default": entry}}):
        number = generators["default"].next_id()
        (snowflake,) = readings(number)[0]["generators"]
        assert snowflake["held_by"]["holder"] == "web-1"
        assert json.loads(json.dumps(snowflake)) == snowflake
        layout = maps.generator_settings("default").layout
        a_minute_before = number - (60_000 << layout.time_shift)
        for other in (number ^ 1 << layout.worker_shift, a_minute_before):
            (snowflake,) = readings(other)[0]["generators"]
            assert snowflake["held_by"] is None
            assert "not recorded; the log says" in snowflake["held_by_unknown"]


@pytest.mark.django_db
def test_what_can_t_be_seen_from_here_is_told_in_the_reading() -> None:
    """The rest of what an id says needs nobody."""
    lender = {"base_urls": "http://127.0.0.1:1/idgen/", "token": "x"}
    leases = {"BACKEND": "django_idgen.leases.http.HttpLeases", "OPTIONS": lender}
    with override_settings(IDGEN={"GENERATORS": {"default": {"LEASES": leases}}}):
        (snowflake,) = readings(packed(), generator="default", now=NOW)[0]["generators"]
    assert snowflake["parts"]["worker"] == 3
    assert snowflake["held_by"] is None
    assert "only the service knows their holders" in snowflake["held_by_unknown"]


@pytest.fixture
def alone(file: str) -> Iterator[str]:
    """The alias of an empty SQLite file, in a project without servers."""
    with without(*servers.URLS):
        yield file


@pytest.mark.parametrize(
    "changed",
    [
        {"LAYOUT": {"time": 40, "worker": 10, "sequence": 13, "tick": 0.002}},
        *long({"EPOCH": "2024-12-31T23:00:00Z"}, {"LAYOUT": "uid"}),
    ],
)
def test_ids_of_before_a_move_are_read_as_they_were_made(
    alone: str, changed: dict[str, Any]
) -> None:
    """Another layout or epoch would make another time and worker id of them."""
    leases = {"LEASES": {"OPTIONS": {"database": alone}}}
    parts = []
    for entry in (leases, leases | changed):
        with override_settings(IDGEN={"GENERATORS": {"default": entry}}):
            mended("settings", database=[alone])
            parts.append(generators["default"].decode(generators["default"].next_id()))  # type: ignore[attr-defined]
            maps.reset()
    with override_settings(IDGEN={"GENERATORS": {"default": leases | changed}}):
        old, new = (readings(each.id)[0]["generators"][0] for each in parts)
        (offline,) = readings(parts[0].id, offline=True)[0]["generators"]
    assert parts_document(parts[0]).items() <= old["parts"].items()
    assert offline["parts"] != old["parts"]
    assert old["plausible"]
    assert (old["held_by"], bool(old["held_by_unknown"])) == (None, True)
    assert parts_document(parts[1]).items() <= new["parts"].items()
    assert new["held_by"] is not None


def test_ids_of_a_layout_with_a_batch_are_still_read(alone: str) -> None:
    """After the move to a layout without one: the namespace remembers that it had one."""
    fields = (("time", 40), ("batch", 3), ("worker", 10), ("sequence", 10))
    entry = {
        "LAYOUT": {"time": 40, "worker": 10, "sequence": 13},
        "LEASES": {"OPTIONS": {"database": alone}},
    }
    with override_settings(IDGEN={"GENERATORS": {"default": entry}}):
        now = maps.generator_settings("default")
        layout = BitLayout(fields, tick_us=1000, epoch_us=now.layout.epoch_us)
        with build_generator(replace(now, layout=layout)) as before:
            number = before.next_id()
        mended("settings", database=[alone])
        (found,) = readings(number)[0]["generators"]
    assert parts_document(layout.unpack(number)).items() <= found["parts"].items()
    assert found["parts"]["batch"] < 4


def test_ids_of_before_other_worker_ids_were_lent_are_no_doubtful_ones(alone: str) -> None:
    """Who held the worker id then is told, and its parts have their names."""
    entry: dict[str, Any] = {"LAYOUT": {"time": 41, "worker": {"a": 4, "b": 6}, "sequence": 12}}
    numbers = []
    for workers in ([0, 2], [2, 4]):
        entry["LEASES"] = {"OPTIONS": {"database": alone, "workers": workers}}
        with override_settings(IDGEN={"GENERATORS": {"default": entry}}):
            mended("settings", database=[alone])
            numbers.append(generators["default"].next_id())
            (found,) = readings(numbers[0])[0]["generators"]
            maps.reset()
    assert found["plausible"]
    assert found["parts"]["worker_parts"].keys() == {"a", "b"}
    assert found["held_by"] is not None


# --- tags -------------------------------------------------------------------------------------


@pytest.fixture
def tags(empty_place: str) -> Iterator[str]:
    """A database of each kind with our tables alone, whose tags leave a history."""
    make_tables(empty_place)
    source = {"OPTIONS": {"database": empty_place, "history": True}}
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": source}}):
        yield empty_place


def test_the_history_names_the_grant(tags: str) -> None:
    """The range, its holder and time."""
    number = segments["orders"].next_id()
    (found,) = readings(number)
    (reading,) = found["tags"]
    assert (reading["tag"], reading["standing"]) == ("orders", "granted")
    (grant,) = reading["grants"]
    assert int(grant["start"]) <= number <= int(grant["last"])
    assert grant["database"] == tags
    assert grant["holder"]
    assert (found["notes"], reading["not_recorded"]) == ([], "")
    assert json.loads(json.dumps(found)) == found


@on_every_database
def test_without_a_history_tags_past_it_are_possible(alias: str) -> None:
    """Those of the project's fields first; one that has not come to it is none of them."""
    source = {"OPTIONS": {"database": alias}}
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": source}}):
        rows = LeafAlloc.objects.using(alias)
        rows.all().delete()
        for tag, max_id in (("aaa", 2**60), ("short", 50), ("app.invoice", 2**61)):
            rows.create(biz_tag=tag, max_id=max_id)
        found = readings(1000)[0]["tags"]
        assert [(each["tag"], each["standing"]) for each in found] == [
            ("app.invoice", "possible"),
            ("aaa", "possible"),
        ]
        assert found[0]["fields"] == ["app.Invoice.id"]
        assert "not recorded" in found[0]["not_recorded"]
        (asked,) = readings(1000, tag="short")[0]["tags"]
        assert (asked["standing"], asked["max_id"]) == ("ahead", "50")
        assert readings(1000, tag="nobody")[0]["tags"][0]["standing"] == "unknown"
        # An id that another of several databases gives out is none of this one's.
        rows.create(biz_tag="even", max_id=1000, delta=2, remainder=0)
        assert readings(10, tag="even")[0]["tags"][0]["standing"] == "possible"
        assert readings(11, tag="even")[0]["tags"][0]["standing"] == "ahead"


@on_every_database
def test_thousands_of_tags_are_not_all_told(alias: str) -> None:
    """Fifty, and how many more there are, in a handful of queries."""
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": {"OPTIONS": {"database": alias}}}}):
        rows = LeafAlloc.objects.using(alias)
        rows.all().delete()
        rows.bulk_create(LeafAlloc(biz_tag=f"t{n}", max_id=100) for n in range(60))
        (found,) = readings(5)
    assert len(found["tags"]) == 50
    assert found["more_tags"] == 10


@pytest.mark.django_db(databases=["default", "postgres"])
def test_a_table_that_is_not_there_spoils_no_transaction() -> None:
    """On a server that ends a transaction at its first error, the caller's goes on."""
    servers.require("postgres")
    source = {"OPTIONS": {"database": "postgres"}}
    with (
        override_settings(IDGEN={"SEGMENTS": {"SOURCE": source}}),
        transaction.atomic(using="postgres"),
        connections["postgres"].schema_editor() as editor,
    ):
        editor.delete_model(SegmentHistory)
        LeafAlloc.objects.using("postgres").create(biz_tag="t", max_id=100)
        assert readings(5, tag="t")[0]["tags"][0]["standing"] == "possible"
        transaction.set_rollback(True, using="postgres")


@pytest.mark.django_db
def test_a_row_is_found_by_its_prefix() -> None:
    """A prefix names the model, so there it is found, too, that there is none."""

    def found(text: object, **options: Any) -> list[tuple[str, bool, str]]:
        (reading,) = readings(text, **options)
        return [(row["field"], row["exists"], row["row"]) for row in reading["rows"]]

    with override_settings(IDGEN={}):
        customer = Customer.objects.create(name="Ada")
        text = customer.get_id_display()
        assert found(text) == [("app.Customer.id", True, str(customer))]
        assert found(Customer(pk=packed()).get_id_display()) == [("app.Customer.id", False, "")]
        assert found(customer.pk) == found(text, offline=True) == []


def test_what_is_away_is_asked_once_for_all_readings_of_a_text(postgres: str) -> None:
    """A text may be of two forms, and each look at a dead server may take seconds."""
    lender = {"OPTIONS": {"database": postgres}}
    texts = (TextForm("base36").format(packed(sequence=n)) for n in range(100))
    of_two_forms = next(text for text in texts if len(spellings(text)) > 1)
    with (
        override_settings(
            IDGEN={"GENERATORS": {"default": {"LEASES": lender}}, "SEGMENTS": {"SOURCE": lender}}
        ),
        dead_server(postgres) as met,
    ):
        for text in (str(packed()), of_two_forms):
            for found in readings(text, now=NOW + timedelta(days=1)):
                assert "failed" in found["generators"][0]["held_by_unknown"]
                assert postgres in found["notes"][0]
            met.append(0)
    once, for_all = "".join(map(str, met)).strip("0").split("0")
    assert len(for_all) <= len(once)


@contextmanager
def dead_server(alias: str) -> Iterator[list[int]]:
    """Where the database ``alias`` was somebody hangs up; notes a 1 for each who comes."""
    settings = connections.settings[alias]
    place = settings["HOST"], settings["PORT"]
    connections[alias].close()
    met: list[int] = []

    class HangUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            met.append(1)

    with socketserver.TCPServer(("127.0.0.1", 0), HangUp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings.update(HOST="127.0.0.1", PORT=str(server.server_address[1]))
        connections[alias].settings_dict.update(HOST="127.0.0.1", PORT=settings["PORT"])
        try:
            yield met
        finally:
            server.shutdown()
            settings.update(HOST=place[0], PORT=place[1])
            connections[alias].settings_dict.update(HOST=place[0], PORT=place[1])


# --- what a pasted text is read as ----------------------------------------------------


NUMBER = 249_874_376_732_819_456
CUSTOMER = f"cus_{TextForm('base62').format(NUMBER)}"


def ids(text: object) -> list[int]:
    return [each.id for each in spellings(text)]


def test_a_number_is_read_as_it_is_pasted() -> None:
    """With spaces around it, or filled up with zeros; grouped digits are no id."""
    for text in (NUMBER, str(NUMBER), f"  {NUMBER}\n", f"000{NUMBER}"):
        assert ids(text) == [NUMBER]
    for grouped in (f"{NUMBER:,}", f"{NUMBER:_}", f"{NUMBER:,}".replace(",", "\u202f")):
        with pytest.raises(InvalidId, match="decimal digits"):
            spellings(grouped)


@given(number=st.integers(1, MAX_ID), alphabet=st.sampled_from(sorted(ALPHABETS)))
def test_what_a_field_writes_is_among_the_readings(number: int, alphabet: str) -> None:
    """Of any id, in every alphabet."""
    found = spellings(TextForm(alphabet).format(number))
    assert number in {each.id for each in found if each.form in (alphabet, "decimal")}


def test_a_prefix_names_the_fields() -> None:
    """Then it can be no other's."""
    (found,) = spellings(CUSTOMER)
    assert (found.id, found.form, found.prefix) == (NUMBER, "base62", "cus_")
    assert [field.model._meta.object_name for field in found.fields] == ["Customer"]


def test_what_may_be_two_forms_is_read_as_both() -> None:
    """Thirteen digits of base36 may be Crockford's as well: the fields' own form is named."""
    found = {each.form: each for each in spellings("0000000000042")}
    assert {form: each.id for form, each in found.items()} == {
        "base36": 146,
        "crockford": 130,
        "decimal": 42,
    }
    assert "app.Bill.id" in found["base36"].why
    assert "app.Purchase.id" in found["crockford"].why
    assert [each.form for each in spellings("0000000000042", form="crockford")] == ["crockford"]


@pytest.mark.parametrize(
    ("given_text", "words"),
    [
        (None, "not nothing"),
        (True, "not a bool"),
        (1.5, "not a float"),
        (b"1", "not a bytes"),
        ("", "it is empty"),
        (" \n\t", "it is empty"),
        (0, "1 to 2**63 - 1"),
        (-5, "1 to 2**63 - 1"),
        (2**63, "1 to 2**63 - 1"),
        ("0", "1 to 2**63 - 1"),
        ("-5", "1 to 2**63 - 1"),
        ("−5", "1 to 2**63 - 1"),
        (str(2**63), "1 to 2**63 - 1"),
        ("9" * 5000, "1 to 2**63 - 1"),
        ("1.5", "whole numbers"),
        ("0.500", "whole numbers"),
        ("1e18", "whole numbers"),
        ("0x10", "can't be read as decimal digits"),
        ("0x" + "f" * 16, "can't be read"),
        (f"see {NUMBER}", "can't be read"),
        (f"https://shop.example/orders/{NUMBER}/", "can't be read"),
        (f'{{"id": {NUMBER}}}', "can't be read"),
        ("zzzzzzzzzzz", "can't be read"),
        ("order", "prefix of this project (cus_, gift_, shp_)"),
        ("cus_0ISQ", "in base62 an id has 11 digits, not 4"),
        ("cus_0ISQUWhLy-a", "'-' is not a digit of base62"),
        ("2026-11-22", "can't be read"),
        ("4b7f0c1e-7a65-4c33-9d6a-ff00aa112233", "can't be read"),
        ("\ud800\x00", "can't be read"),
        ("x" * 20_000, "the limit is 10000"),
    ],
)
def test_nonsense_is_refused_in_clear_words(given_text: object, words: str) -> None:
    """Each with what is wrong about it, and no digits of a huge number."""
    with pytest.raises(InvalidId) as caught:
        spellings(given_text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_long_text_is_read_in_no_time() -> None:
    """Each character is looked at a few times, not thousands: nobody can hold a server up."""
    texts = "1" * 9999 + "x", "1" * 5000 + "." + "1" * 4998 + "x", "1,111" * 1999 + "x", "a " * 4999
    for text in texts:
        began = process_time()
        with suppress(InvalidId):
            spellings(text)
        assert process_time() - began < 5


def test_models_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may have hundreds of models."""
    asked = []

    def get_models() -> list[object]:
        asked.append(1)
        return []

    monkeypatch.setattr(apps, "get_models", get_models)
    with pytest.raises(InvalidId):
        spellings("no id")
    assert len(asked) == 1
