"""Ids in templates: text on request, and never with thousand separators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import django
import pytest
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.paginator import Paginator
from django.db import connection
from django.template import engines
from django.template.backends.django import DjangoTemplates as Plain
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_idgen.core.errors import ConfigurationError
from django_idgen.template_backends.django import DjangoTemplates
from tests.app.models import Customer, Line, Order, Purchase, Receipt

pytestmark = pytest.mark.django_db

BACKEND = "django_idgen.template_backends.django.DjangoTemplates"
PK = 1_234_567_890

grouped = override_settings(USE_THOUSAND_SEPARATOR=True)


@pytest.fixture(autouse=True)
def _grouped() -> Any:
    with grouped:
        yield


def backend(*folders: Path, kind: type[Plain] = DjangoTemplates, **options: Any) -> Plain:
    app_dirs = "loaders" not in options
    return kind({"NAME": "django", "DIRS": list(folders), "APP_DIRS": app_dirs, "OPTIONS": options})


def render(source: str, kind: type[Plain] = DjangoTemplates, **context: Any) -> str:
    return str(backend(kind=kind).from_string(source).render(context))


@pytest.fixture
def purchase() -> Purchase:
    customer = Customer.objects.create(pk=PK, name="a")
    return Purchase.objects.create(pk=PK + 1, customer=customer, stamp=PK + 2)


# --- the filter -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [Plain, DjangoTemplates])
def test_the_filter_writes_text(kind: type[Plain], purchase: Purchase) -> None:
    """Of an instance in its own form, of a number in the form that is asked for."""
    cases = {
        "p|id_text": purchase.get_id_display(),
        'p|id_text:"customer"': purchase.customer.get_id_display(),
        'p|id_text:"customer_id"': purchase.customer.get_id_display(),
        'p|id_text:"stamp"': str(PK + 2),
        'p|id_text:"base62:x_"': f"x_{'0' * 5}1LY7VL",
        "p.id|id_text": str(PK + 1),
        "p.customer_id|id_text": str(PK),
        'p.id|id_text:"base36"': "0000000kf12oj",
        "nothing|id_text": "",
        "none|id_text": "",
        "text|id_text": "cus_1",
        "zero|id_text": "0",
        "new|id_text": "",
        "user|id_text": "1234567",
    }
    context = {
        "p": purchase,
        "none": None,
        "text": "cus_1",
        "zero": 0,
        "new": Purchase(),
        "user": User(pk=1_234_567),
    }
    for expression, expected in cases.items():
        source = "{% load idgen %}{{ " + expression + " }}"
        assert render(source, kind, **context) == expected, expression


def test_the_filter_asks_no_database(purchase: Purchase) -> None:
    """The id of a related row is in the row itself."""
    fresh = Purchase.objects.get()
    with CaptureQueriesContext(connection) as queries:
        render('{% load idgen %}{{ p|id_text:"customer" }}', p=fresh)
    assert len(queries) == 0


@pytest.mark.parametrize("form", ["base64", "note", "nothing", "Base62:x"])
def test_a_form_that_is_not_there_is_an_error(purchase: Purchase, form: str) -> None:
    """A slip of the author's is not hidden from them."""
    with pytest.raises(ConfigurationError):
        render('{% load idgen %}{{ p|id_text:"' + form + '" }}', p=purchase)


# --- the backend ----------------------------------------------------------------


def test_ids_of_rows_are_plain_digits(purchase: Purchase) -> None:
    """The key by both names, other columns, foreign keys, in Django's tags and behind filters."""
    order = Order.objects.create(pk=PK)
    line = Line.objects.create(order=order)
    cases = {
        "{{ p.id }}": f"{PK + 1}",
        "{{ p.pk }}": f"{PK + 1}",
        "{{ p.stamp }}": f"{PK + 2}",
        "{{ p.customer_id }}": f"{PK}",
        "{{ p.customer.pk }}": f"{PK}",
        "{{ line.order_id }} {{ line.order.id }}": f"{PK} {PK}",
        "{% for p in ps %}{{ p.id }};{% endfor %}": f"{PK + 1};",
        "{% if p %}{{ p.id }}{% else %}-{% endif %}": f"{PK + 1}",
        "{% if not p %}-{% else %}{{ p.id }}{% endif %}": f"{PK + 1}",
        "{% with q=p %}{{ q.id }}{% endwith %}": f"{PK + 1}",
        "{% with id=p.id %}{{ id }}{% endwith %}": f"{PK + 1}",
        "{% filter upper %}{{ p.id }}{% endfilter %}": f"{PK + 1}",
        "{% localize on %}{{ p.id }}{% endlocalize %}": f"{PK + 1}",
        "{% autoescape off %}{{ p.id }}{% endautoescape %}": f"{PK + 1}",
        '{{ p.id|default:"-" }}': f"{PK + 1}",
        '{{ p.id|stringformat:"015d" }}': f"{PK + 1:015d}",
        "{{ p.id|add:1 }}": f"{PK + 2:,}",
        "{{ rows.0.id }} {{ rows.0.customer_id }}": f"{PK + 1} {PK}",
        "{{ named.0.id }}": f"{PK + 1}",
        "{{ ps.first.id }}": f"{PK + 1}",
        "{{ pk }}": f"{PK}",
    }
    context = {
        "p": purchase,
        "line": line,
        "ps": Purchase.objects.all(),
        "rows": Purchase.objects.values("id", "customer_id"),
        "named": Purchase.objects.values_list("id", named=True),
        "pk": PK,
    }
    for source, expected in cases.items():
        assert render("{% load l10n %}" + source, **context) == expected, source


def test_other_numbers_are_as_django_writes_them(purchase: Purchase) -> None:
    """Those of other models, of no model, and those that only share a name with an id."""
    page = Paginator(range(10_000), 1).page(5000)  # Receipt.number is an id of ours
    assert Receipt._meta.get_field("number") is not None
    context = {
        "p": purchase,
        "user": User(pk=1_234_567),
        "page": page,
        "n": 1_234_567,
        "price": 1234.5,
        "ok": True,
    }
    for source in (
        "{{ user.id }} {{ user.pk }}",
        "{{ page.number }}",
        "{{ n }} {{ price }}",
        "{{ ok }}",
        "{{ p.id|length }}",
        "{{ 1234567 }}",
        "{{ p.gone }}{{ p.gone.id }}{{ gone.id }}",
        "{{ p.purchases.id }}",
    ):
        assert render(source, **context) == render(source, Plain, **context), source
    assert render("{{ page.number }} {{ n }}", **context) == "5,000 1,234,567"


def test_a_missing_variable_is_named_as_django_names_it(purchase: Purchase) -> None:
    """``string_if_invalid`` shows what the template says, at whatever part it failed."""
    for source in ("{{ a.id }}", "{{ p.note.id }}", "{{ id }}", '{{ a.id|default:"x" }}'):
        shown = [
            backend(kind=kind, string_if_invalid="<%s>").from_string(source).render({"p": purchase})
            for kind in (Plain, DjangoTemplates)
        ]
        assert shown[0] == shown[1]


def test_what_comes_before_is_looked_up_once(purchase: Purchase) -> None:
    """No query, and no call, is made twice."""
    with CaptureQueriesContext(connection) as queries:
        assert render("{{ rows.first.id }}", rows=Purchase.objects.all()) == str(PK + 1)
    assert len(queries) == 1
    calls = []
    assert render("{{ f.id }}", f=lambda: calls.append(1) or {"id": PK}) == str(PK)
    assert calls == [1]


FILES = {
    "base.html": "{% block body %}base {{ p.id }}{% endblock %} {{ p.pk }}",
    "middle.html": "{% extends 'base.html' %}{% block body %}{{ block.super }} "
    "{{ p.stamp }}{% endblock %}",
    "page.html": "{% extends 'middle.html' %}{% block body %}{{ block.super }} "
    "{% include 'part.html' with q=p.customer %}{% endblock %}",
    "part.html": "part {{ q.id }} {{ n }}",
}
EXPECTED = f"base {PK + 1} {PK + 2} part {PK} 1,234,567 {PK + 1}"
LOADERS = "django.template.loaders"


@pytest.mark.parametrize("options", ["default", "debug", "uncached", "locmem"])
def test_inherited_included_and_cached_templates(
    purchase: Purchase, tmp_path: Path, options: str
) -> None:
    """Each template is adapted however it was loaded, and once."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    chosen: dict[str, Any] = {
        "default": {},
        "debug": {"debug": True},
        "uncached": {"loaders": [f"{LOADERS}.filesystem.Loader"]},
        "locmem": {
            "loaders": [(f"{LOADERS}.cached.Loader", [(f"{LOADERS}.locmem.Loader", FILES)])]
        },
    }[options]
    made = backend(tmp_path, **chosen)
    for _ in range(2):
        assert made.get_template("page.html").render({"p": purchase, "n": 1_234_567}) == EXPECTED
    with pytest.raises(Exception, match=r"gone\.html"):
        made.get_template("gone.html")
    assert [loader.reset() for loader in made.engine.template_loaders] == [None]
    watched = list(made.engine.template_loaders[0].get_dirs())  # by the autoreloader
    assert (tmp_path in watched) == (options != "locmem")


@pytest.mark.skipif(django.VERSION < (6,), reason="Django 6.0 has partials")
def test_partials() -> None:
    """In their own template, and by themselves."""
    part = "{% partialdef part %}{{ o.id }}{% endpartialdef %}"
    files = {
        "page.html": f"{part}{{% partial part %}}",
        "other.html": "{% include 'page.html#part' %}",
    }
    made = backend(loaders=[(f"{LOADERS}.locmem.Loader", files)])
    for name in ("page.html", "page.html#part", "other.html"):
        assert made.get_template(name).render({"o": Order(pk=PK)}) == str(PK)


def test_the_admin_works_with_it(admin_client: Any, purchase: Purchase) -> None:
    """As the project's only backend, under the name that Django's has."""
    from django.conf import settings

    templates = [{**settings.TEMPLATES[0], "BACKEND": BACKEND}]
    with override_settings(TEMPLATES=templates):
        assert [engine.name for engine in engines.all()] == ["django"]
        assert admin_client.get("/admin/app/purchase/").status_code == 200
        assert run_checks(tags=["admin"]) == []


# --- the check ------------------------------------------------------------------


def warned(**settings: Any) -> bool:
    with override_settings(**settings):
        return "django_idgen.W008" in [found.id for found in run_checks(tags=["templates"])]


def test_a_project_is_told_where_ids_are_grouped() -> None:
    """Where separators are on and no backend is ours; the hint has the line."""
    from django.conf import settings

    assert warned()
    assert not warned(USE_THOUSAND_SEPARATOR=False)
    plain = settings.TEMPLATES[0]
    assert not warned(TEMPLATES=[{**plain, "BACKEND": BACKEND}])
    assert not warned(TEMPLATES=[{"BACKEND": "django.template.backends.dummy.TemplateStrings"}])
    found = [one for one in run_checks(tags=["templates"]) if one.id == "django_idgen.W008"]
    assert BACKEND in str(found[0].hint)
    assert "{{ order.id|id_text }}" in str(found[0].hint)
