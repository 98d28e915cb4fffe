"""When the libraries are adopted, and when not; what a user's own classes keep."""

from __future__ import annotations

import email
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from django.db import models
from django_filters import filterset as plain_filterset
from django_filters.rest_framework import FilterSet as RestFilterSet
from rest_framework import relations, serializers

from django_idgen.fields import SnowflakeField
from django_idgen.relations import id_behind
from django_idgen.rest import adoption, filters, on_import
from django_idgen.rest.fields import IdField
from tests.app.models import Line, Order, Parcel, Receipt, Shipment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def released() -> Iterator[None]:
    adoption.release()
    yield
    adoption.adopt()


def line_fields(base: type[serializers.ModelSerializer]) -> Any:
    class LineSerializer(base):  # type: ignore[valid-type, misc]
        class Meta:
            model = Line
            fields = ("id", "order", "order_id")

    return LineSerializer(Line(pk=7, order_id=8)).data


def test_a_mapping_copied_before_we_came(released: None) -> None:
    """A base class of the user's, in a module that was imported before our app was ready."""

    copied = dict(serializers.ModelSerializer.serializer_field_mapping)

    class Base(serializers.ModelSerializer):
        serializer_field_mapping = copied
        serializer_related_field = type("Mine", (serializers.PrimaryKeyRelatedField,), {})

    adoption.adopt()
    assert line_fields(Base) == {"id": "7", "order": "8", "order_id": "8"}


def test_a_mapping_that_names_our_fields_is_a_wish() -> None:
    """A number asked for by the user's own mapping, or another way for all big integers."""

    class Numbers(serializers.ModelSerializer):
        serializer_field_mapping = {  # noqa: RUF012
            **serializers.ModelSerializer.serializer_field_mapping,
            SnowflakeField: serializers.IntegerField,
        }

        class Meta:
            model = Order
            fields = ("id",)

    assert Numbers(Order(pk=7)).data == {"id": 7}


def test_methods_of_the_users_own_are_kept() -> None:
    """A subclass that says how a key is written."""

    class Starred(serializers.PrimaryKeyRelatedField):
        def to_representation(self, value: Any) -> str:
            return f"*{value.pk}"

    class Base(serializers.ModelSerializer):
        serializer_related_field = Starred

    assert line_fields(Base) == {"id": "7", "order": "*8", "order_id": "8"}


def test_release_puts_everything_back(released: None) -> None:
    """Numbers again, and no trace in the classes."""
    assert line_fields(serializers.ModelSerializer) == {"id": 7, "order": 8, "order_id": 8}
    for owner in (
        serializers.ModelSerializer,
        serializers.PrimaryKeyRelatedField,
        serializers.SlugRelatedField,
        serializers.ReadOnlyField,
        relations.ManyRelatedField,
        relations.HyperlinkedRelatedField,
    ):
        ours = [name for name, value in vars(owner).items() if "idgen" in str(value)]
        modules = {getattr(value, "__module__", "") for value in vars(owner).values()}
        assert ours == []
        assert not [name for name in modules if name and name.startswith("django_idgen")]


def test_fields_survive_a_copy() -> None:
    """Serializers copy declared fields for each instance, by the arguments they were given."""

    class Base(serializers.ModelSerializer):
        order = serializers.PrimaryKeyRelatedField(queryset=Order.objects.all())
        id = IdField(text_form="base36", read_only=True)

        class Meta:
            model = Line
            fields = ("id", "order")

    for _ in range(2):
        assert Base(Line(pk=7, order_id=8)).data == {"id": "0000000000007", "order": "8"}


def test_both_filter_sets_know() -> None:
    """That of django-filter, and its copy for Django REST framework."""
    for owner in (plain_filterset.FilterSet, RestFilterSet):
        field = Order._meta.pk
        assert issubclass(owner.filter_for_lookup(field, "exact")[0], filters.IdFilter)


def test_modules_keep_their_loaders() -> None:
    """Who looks for the source of a module that was watched finds it."""
    assert type(serializers.__spec__.loader) is SourceFileLoader
    assert type(serializers.__loader__) is SourceFileLoader
    assert "class ModelSerializer" in inspect.getsource(serializers)


def test_what_a_path_leads_to() -> None:
    """Fields, columns, relations both ways, and nothing where there is nothing of ours."""
    order = Order._meta.pk
    for model, path in (
        (Order, ("pk",)),
        (Order, ("id",)),
        (Line, ("order",)),
        (Line, ("order_id",)),
        (Line, ("order", "pk")),
        (Parcel, ("pk",)),
        (Order, ("parcel",)),
        (Shipment, ("previous", "order", "id")),
    ):
        assert id_behind(model, path) is order
    assert id_behind(Shipment, ("receipt",)) is Receipt._meta.get_field("number")
    assert id_behind(Shipment, ("shipment_set",)) is Shipment._meta.pk
    assert id_behind(Order, ("comments",)).model._meta.label == "app.Comment"
    for path in ((), ("note",), ("note", "id"), ("nothing",), ("order", "id")):
        assert id_behind(Order, path) is None
    assert id_behind(Receipt, ("id",)) is None
    assert isinstance(Receipt._meta.pk, models.BigAutoField)


# --- in a process of its own ------------------------------------------------------

SET_UP = """
import sys
from django.conf import settings
{before}
settings.configure(
    SECRET_KEY="x",
    USE_TZ=True,
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django_idgen", "tests.app", *{apps!r}],
    IDGEN={idgen!r},
    REST_FRAMEWORK={{"UNAUTHENTICATED_USER": None}},
)
import django
django.setup()
"""

ROW = """
from rest_framework import serializers
from tests.app.models import Line, Order

class LineSerializer(serializers.ModelSerializer):
    class Meta:
        model = Line
        fields = ("id", "order", "order_id")

print(dict(LineSerializer(Line(pk=7, order_id=8)).data))
"""
STRINGS = "{'id': '7', 'order': '8', 'order_id': '8'}"
NUMBERS = "{'id': 7, 'order': 8, 'order_id': 8}"


def run(code: str, *, before: str = "", idgen: Any = None, apps: tuple[str, ...] = ()) -> str:
    start = SET_UP.format(before=textwrap.dedent(before), idgen=idgen or {}, apps=apps)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", start + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_is_imported_for_those_who_do_not_use_it() -> None:
    """The start of a project that has all of the libraries installed imports none of them."""
    code = """
    libraries = {"rest_framework", "django_filters", "drf_spectacular", "ninja", "pydantic"}
    print(sorted(libraries & set(sys.modules)))
    """
    assert run(code) == "[]"


@pytest.mark.parametrize("apps", [(), ("rest_framework",)])
def test_with_and_without_installed_apps(apps: tuple[str, ...]) -> None:
    """Django REST framework works without being named there; so do ids."""
    assert run(ROW, apps=apps) == STRINGS


def test_imported_before_the_start() -> None:
    """By a settings module, say."""
    assert run(ROW, before="import rest_framework.fields, rest_framework.serializers") == STRINGS


@pytest.mark.parametrize(
    "first",
    [
        "django_idgen.rest.fields",
        "django_idgen.rest.adoption",
        "django_idgen.rest.filters",
        "django_idgen.rest.schema_extension",
        "django_idgen.ninja",
        "django_filters.rest_framework",
        "drf_spectacular.openapi",
        "ninja",
    ],
)
def test_whatever_is_imported_first(first: str) -> None:
    """Modules of ours that import a library, and libraries that import another."""
    assert run(f"import {first}\n{ROW}") == STRINGS


def test_the_setting_switches_it_off() -> None:
    """Numbers everywhere, but for what the user declares."""
    code = """
    from django_filters import FilterSet, NumberFilter
    from ninja.orm import create_schema
    from django_idgen.rest.fields import IdField

    class Declared(serializers.Serializer):
        id = IdField()

    class Filters(FilterSet):
        class Meta:
            model = Line
            fields = ["id"]

    print(Declared({"id": 7}).data)
    print(type(Filters.base_filters["id"]) is NumberFilter)
    print(create_schema(Line).json_schema()["properties"]["order_id"]["type"])
    """
    out = run(ROW + textwrap.dedent(code), idgen={"REST": {"strings": False}})
    assert out.splitlines() == [NUMBERS, "{'id': '7'}", "True", "integer"]


def test_settings_that_do_not_parse_are_for_the_checks() -> None:
    """Django REST framework can be imported; the check names the setting."""
    code = """
    from django.core.checks import run_checks
    print([each.id for each in run_checks() if each.id.startswith("django_idgen.E")])
    """
    out = run(ROW + textwrap.dedent(code), idgen={"REST": {"strings": "yes"}})
    assert out.splitlines() == [STRINGS, "['django_idgen.E001']"]


def test_without_the_libraries() -> None:
    """The app starts, and passes its checks, where none of them is installed."""
    before = """
    from importlib.abc import MetaPathFinder
    class Blocked(MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {
                "rest_framework", "django_filters", "drf_spectacular", "ninja", "pydantic"
            }:
                raise ModuleNotFoundError(f"{name} is blocked", name=name)
    sys.meta_path.insert(0, Blocked())
    """
    code = """
    from django.core.checks import run_checks
    try:
        import rest_framework.serializers
    except ModuleNotFoundError as error:
        print(error)
    print([each.id for each in run_checks() if each.id.startswith("django_idgen.E")])
    """
    assert run(code, before=before).splitlines() == ["rest_framework is blocked", "[]"]


def test_a_module_that_is_not_there_is_not_there() -> None:
    """The error of the import is Python's own."""
    code = """
    from django_idgen.rest.on_import import when_imported
    when_imported("tests.nothing_of_that_name", lambda: print("?"))
    try:
        import tests.nothing_of_that_name
    except ModuleNotFoundError as error:
        print(error)
    """
    assert run(code) == "No module named 'tests.nothing_of_that_name'"


def test_finders_of_the_old_kind_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some have no ``find_spec``, such as those in copies of six; Python does without, too."""
    old: Any = type("Old", (), {"find_module": None})()
    monkeypatch.setattr(sys, "meta_path", [old, *sys.meta_path])
    monkeypatch.setattr(on_import, "_watched", {"email.charset"})
    found = on_import._finder.find_spec("email.charset", email.__path__)
    assert found is not None
    assert found.name == "email.charset"
