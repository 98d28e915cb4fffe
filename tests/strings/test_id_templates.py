"""Ids in templates: text on request, and never with thousand separators."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.db import connection
from django.template.backends.django import DjangoTemplates
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_idgen.core.errors import ConfigurationError
from tests.app.models import Customer, Purchase

pytestmark = pytest.mark.django_db

PK = 1_234_567_890

grouped = override_settings(USE_THOUSAND_SEPARATOR=True)


@pytest.fixture(autouse=True)
def _grouped() -> Any:
    with grouped:
        yield


def render(source: str, **context: Any) -> str:
    backend = DjangoTemplates({"NAME": "django", "DIRS": [], "APP_DIRS": True, "OPTIONS": {}})
    return str(backend.from_string(source).render(context))


@pytest.fixture
def purchase() -> Purchase:
    customer = Customer.objects.create(pk=PK, name="a")
    return Purchase.objects.create(pk=PK + 1, customer=customer, stamp=PK + 2)


# --- the filter -----------------------------------------------------------------


def test_the_filter_writes_text(purchase: Purchase) -> None:
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
        assert render(source, **context) == expected, expression
    context["p"] = Purchase.objects.get()
    with CaptureQueriesContext(connection) as queries:  # the id of a related row is in the row
        render('{% load idgen %}{{ p|id_text:"customer" }}', **context)
    assert len(queries) == 0


def test_a_form_that_is_not_there_is_an_error(purchase: Purchase) -> None:
    """A slip of the author's is not hidden from them."""
    for form in ("base64", "note", "nothing", "Base62:x"):
        with pytest.raises(ConfigurationError):
            render('{% load idgen %}{{ p|id_text:"' + form + '" }}', p=purchase)


# --- the check ------------------------------------------------------------------


def warned(**settings: Any) -> bool:
    with override_settings(**settings):
        return "django_idgen.W008" in [found.id for found in run_checks(tags=["templates"])]


def test_a_project_is_told_where_ids_are_grouped() -> None:
    """Where separators are on and Django's templates are used; the hint has the filter."""
    assert warned()
    assert not warned(USE_THOUSAND_SEPARATOR=False)
    assert not warned(TEMPLATES=[{"BACKEND": "django.template.backends.dummy.TemplateStrings"}])
    found = [one for one in run_checks(tags=["templates"]) if one.id == "django_idgen.W008"]
    assert "{{ order.id|id_text }}" in str(found[0].hint)
