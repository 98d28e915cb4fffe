"""``settings.IDGEN``: what is accepted, and in which words the rest is refused."""

from __future__ import annotations

import os
import pkgutil
import re
from datetime import UTC, datetime
from io import StringIO
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

import django_idgen
from django_idgen import segments
from django_idgen.core.errors import ConfigurationError, GeneratorClosed
from django_idgen.core.generator import Generator
from django_idgen.core.pace import Growth
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.ops.workers import worker_map
from django_idgen.process import maps
from django_idgen.process.factory import (
    build_allocator,
    build_generator,
    build_namespace,
    build_registry,
)
from django_idgen.settings.config import SettingsError, read_settings
from django_idgen.testing import no_registry

HTTP = {"BACKEND": "django_idgen.sources.http.HttpSource"}
SHARDED = {"BACKEND": "django_idgen.contrib.sharding.ShardedSource"}


def build(idgen: dict[str, Any]) -> None:
    with override_settings(IDGEN=idgen):
        read = read_settings()
        for entry in read.generators.values():
            build_generator(entry).close()
        build_allocator(read.segments).close()


def generator(**entry: Any) -> dict[str, Any]:
    return {"GENERATORS": {"default": entry}}


def leases(**options: Any) -> dict[str, Any]:
    return generator(LEASES={"OPTIONS": options})


def checkpointed(registry: dict[str, Any], **options: Any) -> dict[str, Any]:
    backend = "django_idgen.leases.checkpointed.CheckpointedLeases"
    given = {"directory": "/tmp", "registry": registry, **options}
    return generator(LEASES={"BACKEND": backend, "OPTIONS": given})


def test_no_setting_at_all_describes_one_generator_in_the_default_database(
    shipped_timeout: float,
) -> None:
    """A project that only installed the app gets the documented defaults."""
    read = read_settings()
    default = read.generators["default"]
    assert list(read.generators) == ["default"]
    assert default.namespace == "default"
    assert str(default.layout) == ("time 41 | worker 10 | sequence 12, 1 ms ticks from 2025-01-01")
    assert default.window == 180
    assert default.workers == range(1024)
    assert (read.segments.default_step, read.segments.timeout) == (1000, 0.5)
    assert read.segments.first_timeout == 5.0


def test_what_segments_follow_can_be_told() -> None:
    """Each option of the segments comes to the allocator that is built.

    Who asks for more patience than with first segments need not ask twice.
    """
    options = {"segment_duration": 60, "longest_step": 1, "idle_after": 5}
    waits = {"timeout": 0.1, "first_timeout": 2}
    with override_settings(IDGEN={"SEGMENTS": {"OPTIONS": {**options, **waits}}}):
        allocator = build_allocator(read_settings().segments)
    assert (allocator.timeout, allocator.first_timeout) == (0.1, 2.0)
    assert allocator.growth == Growth(duration=60.0, longest_step=1)
    assert allocator.idle_after == 5.0
    with override_settings(IDGEN={"SEGMENTS": {"OPTIONS": {"timeout": 20}}}):
        assert read_settings().segments.first_timeout == 20
    assert read_settings().segments.growth == Growth(900.0, 1_000_000)
    assert read_settings().segments.idle_after == 900.0


def test_the_default_generator_is_there_beside_those_that_are_named() -> None:
    """Naming another alias takes nothing away from ``next_id()``."""
    with override_settings(IDGEN={"GENERATORS": {"web": {"LAYOUT": "js_safe"}}}):
        read = read_settings()
    assert sorted(read.generators) == ["default", "web"]
    assert read.generators["web"].namespace == "web"


def test_a_custom_layout_with_named_parts_and_a_worker_range_is_understood() -> None:
    """The whole of the documented form is read as it is written."""
    entry = {
        "NAMESPACE": "shared",
        "LAYOUT": {"time": 39, "worker": {"dc": 3, "machine": 5}, "sequence": 10, "tick": 0.01},
        "EPOCH": "2024-02-29T12:00:00+01:00",
        "LEASES": {"OPTIONS": {"window": 30, "workers": [0, 128], "database": "default"}},
        "OPTIONS": {"max_ahead": 1, "sequence_start": 100, "skew_limit": 2},
    }
    with override_settings(IDGEN={"GENERATORS": {"x": entry}}):
        x = read_settings().generators["x"]
    assert x.layout.epoch_us == int(datetime(2024, 2, 29, 11, tzinfo=UTC).timestamp()) * 10**6
    assert (x.workers, x.window, x.skew_limit) == (range(128), 30, 2)
    build({"GENERATORS": {"x": entry}})


def static_leases(**options: Any) -> dict[str, Any]:
    backend = "django_idgen.leases.static.StaticLeases"
    return generator(LEASES={"BACKEND": backend, "OPTIONS": {"directory": "/tmp", **options}})


FUTURE = "2999-01-01T00:00:00Z"
SHORT_KEY = "fifteen letters"

REFUSED: list[tuple[Any, list[str]]] = [
    ([], ["IDGEN must be a dictionary", "[]"]),
    ({"GENERATOR": {}}, ["'GENERATOR'", "GENERATORS, SEGMENTS"]),
    ({"GENERATORS": {"": {}}}, ["''", "alias"]),
    ({"GENERATORS": {5: {}}}, ["5", "alias"]),
    ({"GENERATORS": {"default": None}}, ["['default']", "None"]),
    (generator(LAYUOT="standard"), ["'LAYUOT'", "LAYOUT"]),
    (generator(LAYOUT="twitter"), ["'twitter'", "standard"]),
    (generator(LAYOUT={"time": 50, "worker": 10, "sequence": 12}), ["63"]),
    (generator(LAYOUT={"time": 41, "worker": -1, "sequence": 12}), ["-1"]),
    (generator(LAYOUT={"time": 41, "worker": 10}), ["sequence"]),
    (generator(LAYOUT={"sequence": 12, "time": 41, "worker": 10}), ["sequence", "time"]),
    (generator(EPOCH=FUTURE), ["in the future", FUTURE[:10]]),
    (generator(EPOCH="yesterday"), ["'yesterday'"]),
    (generator(EPOCH="2025-01-01T00:00:00"), ["time zone"]),
    (generator(EPOCH="1969-12-31T23:59:59Z"), ["'1969-12-31T23:59:59Z'", "1970"]),
    (generator(NAMESPACE=""), ["NAMESPACE", "''"]),
    (generator(NAMESPACE="n" * 129), ["NAMESPACE", "128"]),
    (generator(NAMESPACE="a\0b"), ["NAMESPACE", r"'a\x00b'", "printed"]),
    (generator(NAMESPACE="a\ud800"), ["NAMESPACE", r"'a\ud800'", "printed"]),
    (
        generator(LAYOUT={"time": 31, "worker": 10, "sequence": 19, "batch": 3, "tick": 1}),
        ["['default']", "'batch' stands below 'sequence'", "Put it above"],
    ),
    (generator(BACKEND="no.such.Thing"), ["no.such.Thing", "imported"]),
    (generator(BACKEND="os.path"), ["['default']['BACKEND']", "'os.path'", "module"]),
    (
        generator(LEASES={"BACKEND": "django_idgen.settings.config.DEFAULT_STEP"}),
        ["['LEASES']['BACKEND']", "config.DEFAULT_STEP'", "1000"],
    ),
    ({"SEGMENTS": {"SOURCE": {"BACKEND": "builtins.int"}}}, ["['BACKEND']", "class 'int'"]),
    (
        generator(BACKEND="django_idgen.leases.memory.MemoryLeases"),
        ["['default']['BACKEND']", "leases.memory.MemoryLeases'", "core.generator.Generator"],
    ),
    (
        generator(LEASES={"BACKEND": "django_idgen.sources.memory.MemorySource"}),
        ["['LEASES']['BACKEND']", "MemorySource'", "django_idgen.core.registry.Registry"],
    ),
    (
        {"SEGMENTS": {"SOURCE": {"BACKEND": "django_idgen.leases.memory.MemoryLeases"}}},
        ["['SOURCE']['BACKEND']", "MemoryLeases'", "django_idgen.core.source.Source"],
    ),
    (generator(BACKEND=7), ["BACKEND", "7"]),
    (generator(OPTIONS={"max_a_head": 1}), ["'max_a_head'", "max_ahead"]),
    (generator(OPTIONS={"max_ahead": -1}), ["max_ahead", "-1"]),
    (generator(OPTIONS={"max_ahead": "1"}), ["max_ahead", "'1'"]),
    (generator(OPTIONS={"max_ahead": float("nan")}), ["max_ahead", "nan"]),
    (generator(OPTIONS={"sequence_start": 5000}), ["sequence_start", "5000", "4096"]),
    (generator(OPTIONS={"wait_limit": 0.001}), ["wait_limit", "longer than a tick"]),
    (generator(OPTIONS={"skew_limit": -1}), ["skew_limit", "-1"]),
    (generator(OPTIONS={"clock": 1}), ["'clock'"]),
    (generator(OPTIONS={"refuse_skew": "no"}), ["refuse_skew", "'no'", "False"]),
    ({"SCRAMBLE_KEYS": ["x" * 16]}, ["SCRAMBLE_KEYS", "dictionary"]),
    ({"SCRAMBLE_KEYS": {"AB": "x" * 16}}, ["SCRAMBLE_KEYS", "'AB'", "one letter"]),
    ({"SCRAMBLE_KEYS": {"I": "x" * 16}}, ["SCRAMBLE_KEYS", "'I'", "ABCDEFGHJK"]),
    ({"SCRAMBLE_KEYS": {1: "x" * 16}}, ["SCRAMBLE_KEYS", "1", "one letter"]),
    ({"SCRAMBLE_KEYS": {"A": SHORT_KEY}}, ["SCRAMBLE_KEYS", "'A'", "16 or more"]),
    ({"SCRAMBLE_KEYS": {"A": b"x" * 16}}, ["SCRAMBLE_KEYS", "'A'", "string"]),
    (generator(OPTIONS={"holder": 3}), ["holder", "3"]),
    (leases(timeout=-5), ["timeout", "-5"]),
    (leases(timeout="5"), ["timeout", "'5'"]),
    (leases(server_identity="off"), ["server_identity", "'off'"]),
    (static_leases(worker=3000), ["LEASES", "3000", "0..1023"]),
    (static_leases(worker="3"), ["LEASES", "'3'"]),
    (leases(window=0), ["window", "0"]),
    (leases(window=True), ["window", "True"]),
    (leases(window="3m"), ["window", "'3m'"]),
    (leases(workers=[0, 1025]), ["workers", "1025", "1024"]),
    (leases(workers=[5, 5]), ["workers", "[5, 5]"]),
    (leases(workers=7), ["workers", "7"]),
    (leases(alias="redis"), ["'alias'", "database"]),
    (leases(database="nowhere"), ["'nowhere'", "'default'"]),
    (leases(history=True), ["['LEASES']['OPTIONS']", "'history'", "'lease_acquired' in the log"]),
    (generator(LEASES={"BACKEND": "django_idgen.leases.static.StaticLeases"}), ["'directory'"]),
    (generator(LEASES="redis"), ["LEASES", "'redis'"]),
    ({"SEGMENTS": {"OPTIONS": {"default_step": 0}}}, ["default_step", "0"]),
    ({"SEGMENTS": {"OPTIONS": {"default_step": 2**63}}}, ["default_step", str(2**63)]),
    ({"SEGMENTS": {"OPTIONS": {"default_step": "9"}}}, ["default_step", "'9'"]),
    ({"SEGMENTS": {"OPTIONS": {"step": 9}}}, ["'step'", "default_step"]),
    ({"SEGMENTS": {"OPTIONS": {"timeout": 0}}}, ["timeout", "0"]),
    (
        {"SEGMENTS": {"OPTIONS": {"timeout": 3, "first_timeout": 2}}},
        ["['OPTIONS']['first_timeout']", "3 to", "2"],
    ),
    ({"SEGMENTS": {"OPTIONS": {"segment_duration": 0}}}, ["segment_duration", "0"]),
    ({"SEGMENTS": {"OPTIONS": {"idle_after": "900"}}}, ["idle_after", "'900'"]),
    ({"SEGMENTS": {"OPTIONS": {"longest_step": 1_000_001}}}, ["longest_step", "1000001"]),
    (
        {"SEGMENTS": {"SOURCE": {**HTTP, "OPTIONS": {"base_urls": "http://a/", "token_env": "B"}}}},
        ["has the key 'token_env'", "removed", "os.environ"],
    ),
    (
        {"SEGMENTS": {"OPTIONS": {"longest_chain": 8}}},
        ["IDGEN['SEGMENTS']['OPTIONS'] has the key 'longest_chain'", "removed", "Leave it out"],
    ),
    *(
        (
            {"SEGMENTS": {"OPTIONS": {"make_tags": value}}},
            ["OPTIONS']['make_tags'] must be True or False", repr(value)],
        )
        for value in (None, 1, "no")
    ),
    ({"SEGMENTS": {"SOURCE": {"OPTIONS": {"database": "nowhere"}}}}, ["'nowhere'"]),
    (
        {"SEGMENTS": {"SOURCE": {**SHARDED, "OPTIONS": {"databases": []}}}},
        ["'databases'", "database"],
    ),
]


def test_what_cannot_work_is_refused_by_name_and_value() -> None:
    """The message has the setting's name, its value and what would be allowed."""
    for idgen, words in REFUSED:
        with pytest.raises(SettingsError) as raised:
            build(idgen)
        said = str(raised.value)
        assert [word for word in words if word not in said] == [], (idgen, said)
        assert isinstance(raised.value, ImproperlyConfigured)
        assert isinstance(raised.value, ConfigurationError)


def test_two_generators_of_one_namespace_must_have_one_layout() -> None:
    """Equal namespaces with unequal layouts would repeat each other's ids."""
    entries = {
        "a": {"NAMESPACE": "shared"},
        "b": {"NAMESPACE": "shared", "LAYOUT": "sonyflake"},
    }
    with pytest.raises(SettingsError, match="share the namespace 'shared'"):
        build({"GENERATORS": entries})


@pytest.mark.parametrize(
    "other",
    [
        {"OPTIONS": {"database": "other"}},
        {"BACKEND": "django_idgen.leases.memory.MemoryLeases"},
    ],
)
def test_two_registries_of_one_namespace_must_not_lend_the_same_worker_ids(other: Any) -> None:
    """Each would lend all of them, and half of the ids would come twice."""
    apart = {"workers": [512, 1024]}
    with_apart = {**other, "OPTIONS": {**other.get("OPTIONS", {}), **apart}}

    def shared(leases: Any) -> dict[str, Any]:
        first = {"LEASES": {"OPTIONS": {"workers": [0, 512]}}}
        return {"GENERATORS": {"default": first, "b": {"NAMESPACE": "default", "LEASES": leases}}}

    with override_settings(IDGEN=shared(with_apart)):
        assert read_settings()
    with (
        override_settings(IDGEN=shared(other)),
        pytest.raises(SettingsError, match="but not the registry"),
    ):
        read_settings()


def test_two_registries_within_checkpoints_are_told_apart() -> None:
    """By what they wrap, and without its secrets."""
    http = {"BACKEND": "django_idgen.leases.http.HttpLeases", "OPTIONS": {"token": "secret-word"}}

    def shared(registry: Any) -> dict[str, Any]:
        first, second = (checkpointed(each)["GENERATORS"]["default"] for each in ({}, registry))
        return {"GENERATORS": {"default": first, "b": {**second, "NAMESPACE": "default"}}}

    with override_settings(IDGEN=shared({})):
        assert read_settings()
    for other in ({"OPTIONS": {"database": "other"}}, http):
        with (
            override_settings(IDGEN=shared(other)),
            pytest.raises(SettingsError, match="but not the registry") as raised,
        ):
            read_settings()
        assert "secret-word" not in str(raised.value)


def test_an_unknown_alias_is_answered_with_those_there_are() -> None:
    """``generators["typo"]`` says which aliases exist."""
    with pytest.raises(SettingsError, match=r"no generator 'typo'.*'default'"):
        maps.generators["typo"]


class Counting(Generator):
    """A generator of the project's own, as ``docs/architecture.md`` describes it."""

    def __init__(self, layout: Any, registry: Any, *, emit: Any, first: int = 1) -> None:
        self._ids = count(first)

    def next_id(self) -> int:
        return next(self._ids)

    def next_ids(self, n: int) -> list[int]:
        return list(islice(self._ids, n))


class Labelled(Counting):
    def __init__(self, layout: Any, registry: Any, *, emit: Any, holder: str) -> None:
        super().__init__(layout, registry, emit=emit, first=10)
        self.holder = holder


def test_a_generator_of_the_projects_own() -> None:
    """It gets its options, and the label of the process only if it takes one."""
    mine = {"BACKEND": f"{__name__}.Counting", "OPTIONS": {"first": 7}}
    labelled = {"BACKEND": f"{__name__}.Labelled"}
    with override_settings(IDGEN={"GENERATORS": {"mine": mine, "labelled": labelled}}):
        assert maps.generators["mine"].next_ids(2) == [7, 8]
        assert maps.generators["labelled"].next_id() == 10
        assert str(os.getpid()) in maps.generators["labelled"].holder
    mine["OPTIONS"] = {"last": 7}
    with (
        override_settings(IDGEN={"GENERATORS": {"mine": mine}}),
        pytest.raises(SettingsError, match="unknown key 'last'"),
    ):
        maps.generators["mine"].next_id()


def test_settings_that_change_in_a_test_take_effect() -> None:
    """``override_settings(IDGEN=...)`` closes the old generators and makes new ones."""
    before = maps.generators["default"]
    with override_settings(IDGEN=generator(LAYOUT="js_safe")):
        during: Any = maps.generators["default"]
        assert during is not before
        assert during.layout.name == "js_safe"
    assert maps.generators["default"] is not during


def test_static_worker_ids_are_never_assumed(tmp_path: Path) -> None:
    """Two hosts that both assumed worker 0 would repeat each other's ids."""
    with pytest.raises(SettingsError, match="needs 'worker', 'workers' or 'worker_from'"):
        build(static_leases(directory=str(tmp_path)))


def test_segments_may_come_from_memory() -> None:
    """A source that brings no loader of its own runs in the caller's thread."""
    source = {"BACKEND": "django_idgen.sources.memory.MemorySource"}
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": source}}):
        assert maps.segments["tea"].next_ids(2) == [1, 2]


def test_a_tag_that_is_made_while_all_are_closed_works_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a thread made of an allocator that was closed meanwhile is not kept."""
    found = segments.allocator

    def closed_meanwhile() -> SegmentAllocator:
        allocator = found()
        maps.reset()
        return allocator

    with no_registry():
        monkeypatch.setattr(segments, "allocator", closed_meanwhile)
        with pytest.raises(GeneratorClosed):
            segments["t"].next_id()
        monkeypatch.undo()
        assert segments["t"].next_id() == 1


def test_the_namespace_knows_how_far_its_holders_run_ahead() -> None:
    """After a loss the fence must lie past the windows of those who borrowed the future."""
    with override_settings(IDGEN=generator(OPTIONS={"max_ahead": 30})):
        namespace = build_namespace(read_settings().generators["default"])
    assert namespace.ahead_ticks == 30_000
    assert namespace.reach_ticks == 210_000


def test_what_is_known_beside_an_unknown_option_is_all_that_is_known() -> None:
    """Also what is no affair of the registry's own class; within another one it is less."""
    with pytest.raises(SettingsError, match=r"'windw'\. Known: window, workers, idle_after, data"):
        build(leases(windw=30))
    with pytest.raises(
        SettingsError, match=r"Known: window, workers, idle_after, worker, worker_from"
    ):
        build(static_leases(windw=3))
    with pytest.raises(SettingsError, match=r"registry'\]\['OPTIONS'\].*Known: database,"):
        build(checkpointed({"OPTIONS": {"databse": "x"}}))


@pytest.mark.parametrize("option", ["window", "workers", "idle_after"])
def test_options_of_the_namespace_stand_outside_of_a_nested_registry(option: str) -> None:
    """They are the same for both, and are given once."""
    with pytest.raises(SettingsError, match=f"'{option}', which belongs one level up"):
        build(checkpointed({"OPTIONS": {option: 900}}))


def test_static_worker_ids_within_another_registry(tmp_path: Path) -> None:
    """Its worker ids are those of the namespace."""
    static = static_leases(directory=str(tmp_path))["GENERATORS"]["default"]["LEASES"]
    idgen = checkpointed(static, directory=str(tmp_path), workers=[12, 14])
    with (
        override_settings(IDGEN=idgen),
        build_generator(read_settings().generators["default"]) as made,
    ):
        assert made.decode(made.next_id()).worker in range(12, 14)


FALLBACK = {
    "BACKEND": "django_idgen.leases.fallback.FallbackLeases",
    "OPTIONS": {"primary": {"OPTIONS": {"workers": [0, 768]}}, "window": 60, "retry_after": 10},
}


@pytest.mark.django_db
@pytest.mark.parametrize("nested", [False, True])
def test_a_removed_registry_is_refused_with_what_to_do_instead(nested: bool) -> None:
    """Whatever reads the settings first, and whatever else is wrong with them."""
    idgen = checkpointed(FALLBACK) if nested else generator(LEASES=FALLBACK)
    where = r"\['registry'\]" if nested else r"\['LEASES'\]"
    removed = where + r"\['BACKEND'\] .*FallbackLeases'\. It was removed: .*put its 'primary' in"
    with override_settings(IDGEN=idgen):
        found = run_checks(tags=["django_idgen"])
        (message,) = [each.msg for each in found if each.id == "django_idgen.E001"]
        assert re.search(removed, message)
        out = StringIO()
        with pytest.raises(SystemExit):
            call_command("idgen_doctor", only=["settings"], database=["default"], stdout=out)
        assert "It was removed" in " ".join(out.getvalue().split())
        for ask in (
            lambda: maps.generators["default"],
            lambda: worker_map("default"),
            lambda: call_command("idgen_status"),
            lambda: call_command("idgen_skip", generators=[], yes=True),
        ):
            with pytest.raises((SettingsError, CommandError), match=removed):
                ask()
    with pytest.raises(SettingsError, match=removed):
        build({"GENERATORS": {**idgen["GENERATORS"], "b": {"NAMESPACE": "default"}}})


def test_holders_agree_on_the_registry_and_its_worker_ids() -> None:
    """L8: both are part of the fingerprint; a nested registry has one of its own."""
    with override_settings(IDGEN=checkpointed({}, workers=[0, 10])):
        registry: Any = build_registry(read_settings().generators["default"])
    outer, inner = registry.namespace.fingerprint, registry.registry.namespace.fingerprint
    assert outer == {**inner, "registry": "checkpointed"}
    assert (inner["registry"], inner["workers"]) == ("database", [0, 10])


def test_a_window_is_whole_ticks_and_rounded_up() -> None:
    """L5: one that is shorter than a tick is one tick long, not none."""
    layout = {"time": 31, "worker": 10, "sequence": 12, "tick": 7}
    for window, ticks in ((0.2, 1), (7, 1), (7.5, 2), (14, 2), (180, 26)):
        idgen = generator(LAYOUT=layout, LEASES={"OPTIONS": {"window": window}})
        with override_settings(IDGEN=idgen):
            namespace = build_namespace(read_settings().generators["default"])
        assert namespace.window_ticks == ticks


def test_static_worker_ids_of_a_host_are_those_it_was_given_and_may_change(tmp_path: Path) -> None:
    """They are the host's affair: only what would repeat ids is held fast."""
    for workers in ([12, 14], [13, 15]):
        with override_settings(IDGEN=static_leases(directory=str(tmp_path), workers=workers)):
            entry = read_settings().generators["default"]
            with build_generator(entry) as one, build_generator(entry) as other:
                lent = {made.decode(made.next_id()).worker for made in (one, other)}
        assert lent == {*range(*workers)}


def test_no_module_takes_the_place_of_what_the_package_offers() -> None:
    """``django_idgen.segments`` is the mapping, whatever is imported (hazard 62)."""
    modules = {module.name for module in pkgutil.iter_modules(django_idgen.__path__)}
    assert "sources" in modules
    assert not modules & set(django_idgen.__all__)
