"""When the libraries are adopted, and when not; what a user's own classes keep."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import models
from django_filters import filterset as plain_filterset
from django_filters.rest_framework import FilterSet as RestFilterSet
from rest_framework import relations, serializers

from django_idgen.core.errors import ConfigurationError
from django_idgen.fields import SnowflakeField
from django_idgen.fields.relations import id_behind
from django_idgen.strings import drf, filters, registration
from django_idgen.strings.drf import IdField
from tests import warm
from tests.app.models import Line, Order, Parcel, Receipt, Shipment
from tests.strings.rest.shop_api import serializer

ROOT = Path(__file__).parents[3]


@pytest.fixture
def released() -> Iterator[None]:
    drf.release()
    yield
    drf.adopt()


def line_fields(base: type[serializers.ModelSerializer]) -> Any:
    class LineSerializer(base):  # type: ignore[valid-type, misc]
        Meta = serializer(Line, ["id", "order", "order_id"]).Meta

    return LineSerializer(Line(pk=7, order_id=8)).data


def test_a_mapping_copied_before_we_came(released: None) -> None:
    """A base class of the user's, in a module that was imported before our app was ready."""

    copied = dict(serializers.ModelSerializer.serializer_field_mapping)

    class Base(serializers.ModelSerializer):
        serializer_field_mapping = copied
        serializer_related_field = type("Mine", (serializers.PrimaryKeyRelatedField,), {})

    drf.adopt()
    assert line_fields(Base) == {"id": "7", "order": "8", "order_id": "8"}


def test_a_mapping_that_names_our_fields_is_a_wish() -> None:
    """A number asked for by the user's own mapping, or another way for all big integers."""

    class Numbers(serializers.ModelSerializer):
        serializer_field_mapping = {  # noqa: RUF012
            **serializers.ModelSerializer.serializer_field_mapping,
            SnowflakeField: serializers.IntegerField,
        }
        Meta = serializer(Order, ["id"]).Meta

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
        Meta = serializer(Line, ["id", "order"]).Meta

    for _ in range(2):
        assert Base(Line(pk=7, order_id=8)).data == {"id": "0000000000007", "order": "8"}


def test_both_filter_sets_know() -> None:
    """That of django-filter, and its copy for Django REST framework."""
    for owner in (plain_filterset.FilterSet, RestFilterSet):
        field = Order._meta.pk
        assert issubclass(owner.filter_for_lookup(field, "exact")[0], filters.IdFilter)


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
    IDGEN={{"SCRAMBLE_KEYS": {{"A": "a key of gift cards"}}, **{idgen!r}}},
    REST_FRAMEWORK={{"UNAUTHENTICATED_USER": None}},
    STATIC_URL="static/",
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


def run(*code: str, before: str = "", idgen: Any = None, apps: tuple[str, ...] = ()) -> list[str]:
    """The lines that a process of its own prints."""
    start = SET_UP.format(before=textwrap.dedent(before), idgen=idgen or {}, apps=apps)
    script = "".join([start, *map(textwrap.dedent, code)])
    done = warm.run(["-W", "error", "-c", script], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_this_app_changes_no_other_library() -> None:
    """The start imports none of those that are installed, which not all projects use.

    No finder is added, and the classes of a library that is not installed stay (hazard 85).
    """
    code = """
    libraries = {"rest_framework", "django_filters", "drf_spectacular", "ninja", "pydantic"}
    print(sorted(libraries & set(sys.modules)))
    import ninja.orm.factory, rest_framework.relations, rest_framework.serializers
    from django_filters.filterset import FILTER_FOR_DBFIELD_DEFAULTS as filters
    finders_are_the_same = sys.meta_path == finders
    own = [
        filters,
        *(vars(each) for each in vars(rest_framework.relations).values() if type(each) is type),
        rest_framework.serializers.ModelSerializer.serializer_field_mapping,
        vars(rest_framework.serializers.ModelSerializer),
        vars(ninja.orm.factory),
    ]
    seen = [dict(each) for each in own]
    import django_idgen.strings.drf, django_idgen.strings.filters, django_idgen.strings.ninja
    print(finders_are_the_same, seen == [dict(each) for each in own], "django_idgen" in str(seen))
    """
    out = run(code, ROW, before="finders = list(sys.meta_path)")
    assert out == ["[]", "True True False", NUMBERS]


KINDS = """
import django_filters.rest_framework, ninja.orm
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import OpenApiSerializerFieldExtension
from graphene_django.converter import convert_django_field
from rest_framework_json_api import renderers

def kind(base):
    meta = type("Meta", (), {"model": Line, "fields": ["id"]})
    return type(type("Own", (base,), {"Meta": meta}).base_filters["id"]).__name__

print(kind(django_filters.FilterSet), kind(django_filters.rest_framework.FilterSet))
print(ninja.orm.create_schema(Line).json_schema()["properties"]["order_id"]["type"])
print(any("idgen" in each.__module__ for each in OpenApiSerializerFieldExtension._registry))
graphene = type(convert_django_field(Line._meta.pk)).__name__
print(renderers.get_resource_id.__module__, graphene)
from import_export.resources import modelresource_factory
from strawberry_django.fields.types import field_type_map
sheet = type(modelresource_factory(Line).fields["id"].widget).__name__
print(sheet, type(Line._meta.pk) in field_type_map)
"""
ALL = (
    "rest_framework",
    "rest_framework_json_api",
    "django_filters",
    "drf_spectacular",
    "graphene_django",
    "import_export",
    "ninja",
    "strawberry_django",
)
JSON_API = "django_idgen.strings.json_api IdText"
LATER = "IdWidget True"


def test_installed_libraries_are_registered() -> None:
    """To be in INSTALLED_APPS is enough: filters of both kinds, schemas, and a serializer.

    Also one that was defined before the start, in a models module, say: its fields are made
    later, and those that it declares follow.
    """
    early = """
    from tests.strings.rest.early_app.models import EarlySerializer
    print(dict(EarlySerializer(Line(pk=7, order_id=8)).data))
    """
    out = run(ROW, KINDS, early, apps=("tests.strings.rest.early_app", *ALL))
    told = "{'id': '7', 'order': '8', 'declared': '8'}"
    assert out == [STRINGS, "IdFilter IdFilter", "string", "True", JSON_API, LATER, told]


def test_one_call_registers_libraries_that_are_not_installed() -> None:
    """Serializers look their fields up when they are used: the call may follow them, too."""
    # Imported first: that makes django-filter's copy of its defaults.
    call = f"""
    import django_filters.rest_framework
    from django_idgen.strings.registration import register
    register(*{ALL!r})
    """
    shown = ROW.rindex("print(")
    out = run(ROW[:shown], call, ROW[shown:], ROW, KINDS)
    assert out == [STRINGS, STRINGS, "IdFilter IdFilter", "string", "True", JSON_API, LATER]


def test_a_library_that_is_not_known_is_refused() -> None:
    """The error names those that are."""
    with pytest.raises(ConfigurationError, match=r"'drf' is not a library .*: 'rest_framework'"):
        registration.register("drf")


def test_a_check_finds_ids_that_are_sent_as_numbers() -> None:
    """W012, where a library that is not registered shows a model with our ids, and only there."""
    code = """
    from django.contrib.contenttypes.models import ContentType
    from django.core.checks import run_checks
    from django.test import override_settings
    from ninja import ModelSchema
    from rest_framework.serializers import ModelSerializer
    from django_idgen.strings.registration import register
    from tests.app.models import Line

    class KindIn(ModelSerializer):
        class Meta:
            model, fields = ContentType, ["id"]

    class KindOut(ModelSchema):
        class Meta:
            model, fields = ContentType, ["id"]

    class LineIn(ModelSerializer):
        class Meta:
            model, fields = Line, ["id"]

    class LineOut(ModelSchema):
        class Meta:
            model, fields = Line, ["id"]

    def told():
        return [each.msg.split()[0] for each in run_checks() if each.id == "django_idgen.W012"]

    print(told())
    with override_settings(IDGEN={"REST": {"strings": False}}):
        print(told())
    register("rest_framework", "ninja")
    print(told())
    """
    assert run(code) == ["['__main__.LineIn', '__main__.LineOut']", "[]", "[]"]


AUTH = "django.contrib.auth"


@pytest.mark.parametrize(
    ("package", "apps"),
    [
        ("Wagtail", (AUTH, "taggit", "wagtail")),
        ("django-tastypie", (AUTH, "tastypie")),
    ],
)
def test_a_package_that_browsers_get_wrong_ids_from_is_named(
    package: str, apps: tuple[str, ...]
) -> None:
    """W013, with the layout that makes it right; silent with that, and without the package."""
    code = """
    from django.core.checks import run_checks
    from django.test import override_settings
    from django_idgen.strings.registration import check_browsers

    def told():
        return [each for each in run_checks() if each.id == "django_idgen.W013"]

    for each in told():
        print(each.msg.split(" write ")[0], "js_safe" in each.hint)
    with override_settings(IDGEN={"GENERATORS": {"default": {"LAYOUT": "js_safe"}}}):
        print(told())
    """
    (told, silent) = run(code, apps=apps)
    assert (told.startswith(package), told.endswith("True"), silent) == (True, True, "[]")
    assert run(code) == ["[]"]


def test_the_setting_switches_it_off() -> None:
    """Numbers everywhere, but for what the user declares."""
    code = """
    from django_filters import FilterSet, NumberFilter
    from ninja.orm import create_schema
    from django_idgen.strings.drf import IdField

    class Declared(serializers.Serializer):
        id = IdField()

    class Filters(FilterSet):
        class Meta:
            model = Line
            fields = ["id"]

    print(Declared({"id": 7}).data)
    print(type(Filters.base_filters["id"]) is NumberFilter)
    print(create_schema(Line).json_schema()["properties"]["order_id"]["type"])
    from graphene_django.converter import convert_django_field
    from rest_framework_json_api import renderers
    graphene = type(convert_django_field(Line._meta.pk)).__name__
    print(renderers.get_resource_id.__module__, graphene)
    """
    out = run(ROW, code, idgen={"REST": {"strings": False}}, apps=ALL)
    library = "rest_framework_json_api.utils ID"
    assert out == [NUMBERS, "{'id': '7'}", "True", "integer", library]


def test_settings_that_do_not_parse_are_for_the_checks() -> None:
    """Django REST framework can be imported; the check names the setting."""
    code = """
    from django.core.checks import run_checks
    print([each.id for each in run_checks() if each.id.startswith("django_idgen.E")])
    """
    out = run(ROW, code, idgen={"REST": {"strings": "yes"}}, apps=ALL[:1])
    assert out == [STRINGS, "['django_idgen.E001']"]


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
    assert run(code, before=before) == ["rest_framework is blocked", "[]"]
