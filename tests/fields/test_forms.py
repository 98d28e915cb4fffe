"""Ids in forms: every form of an id is taken, everything else is a form error."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from django import forms
from django.http import QueryDict
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.encoding import ALPHABETS, TextForm
from django_idgen.core.errors import ConfigurationError
from django_idgen.fields.forms import IdFormField, IdModelMultipleChoiceField
from tests.app.models import Bill, Customer, Folder, Purchase
from tests.fields.conftest import NO_IDS

pytestmark = pytest.mark.django_db

LAST = 2**63 - 1


class FindCustomer(forms.Form):
    customer = IdFormField(Customer)


class FindAny(forms.Form):
    number = IdFormField(required=False)


class PurchaseForm(forms.ModelForm):
    class Meta:
        model = Purchase
        fields = ("customer", "note", "watchers")
        field_classes: ClassVar = {"watchers": IdModelMultipleChoiceField}


class RawPurchaseForm(forms.ModelForm):
    class Meta:
        model = Purchase
        fields = ("customer",)
        widgets: ClassVar = {"customer": forms.TextInput}


BAD: list[Any] = [*NO_IDS, 1.5, True, object(), b"5", {"a": 1}, 2**63, -1]


# --- the field ------------------------------------------------------------------


@given(st.sampled_from(list(ALPHABETS)), st.sampled_from(["", "a_"]), st.integers(1, LAST))
def test_what_is_shown_is_read(alphabet: str, prefix: str, value: int) -> None:
    """The text that a page shows comes back as the id, and is no change."""
    field = IdFormField(TextForm(alphabet, prefix))
    shown = field.prepare_value(value)
    assert shown == TextForm(alphabet, prefix).format(value)
    assert field.clean(shown) == value
    assert field.clean(f"  {shown}\n") == value
    assert field.clean(value) == value
    assert not field.has_changed(value, shown)
    assert not field.has_changed(shown, shown)
    assert field.has_changed(value, "")
    assert field.has_changed(value, "nonsense")


def test_bad_input_is_a_form_error() -> None:
    """With an example of an id, and without the input, however long it was."""
    for value in BAD:
        form = FindCustomer({"customer": value})
        assert not form.is_valid(), repr(value)[:20]
        error = form.errors.as_data()["customer"][0]
        assert error.code == "invalid"
        assert form.errors["customer"] == ["Enter a valid id, such as cus_00000000001."]


def test_an_empty_field() -> None:
    """None where it may be, else the usual error."""
    assert FindAny({"number": " "}).is_valid()
    assert FindAny({}).fields["number"].clean("") is None
    assert FindCustomer({"customer": ""}).errors.as_data()["customer"][0].code == "required"


@override_settings(USE_THOUSAND_SEPARATOR=True)
def test_a_page_shows_the_text() -> None:
    """An initial id in the field's form without separators; what was typed wrong as it was."""
    assert 'value="cus_00000000KO8"' in str(FindCustomer(initial={"customer": 78_376})["customer"])
    assert 'value="1234567"' in str(FindAny(initial={"number": 1_234_567})["number"])
    assert 'value="no, id"' in str(FindCustomer({"customer": "no, id"})["customer"])


def test_a_target_that_holds_no_ids_is_refused() -> None:
    """When the form is written, not when somebody fills it in."""
    with pytest.raises(ConfigurationError, match="text form"):
        IdFormField(Folder._meta.get_field("name"))


# --- model forms ----------------------------------------------------------------


@pytest.fixture
def customers() -> list[Customer]:
    return Customer.objects.bulk_create([Customer(name=name) for name in "abc"])


@override_settings(USE_THOUSAND_SEPARATOR=True)
def test_a_select_has_plain_digits(customers: list[Customer]) -> None:
    """Its options are what the row's id is, and the chosen one comes back."""
    page = str(PurchaseForm()["customer"])
    for customer in customers:
        assert f'value="{customer.pk}"' in page
    form = PurchaseForm({"customer": str(customers[0].pk)})
    assert form.is_valid(), form.errors
    assert form.save().customer == customers[0]


def test_a_relation_takes_any_form_of_the_id(customers: list[Customer]) -> None:
    """In a text input, or sent by a client that has only the text."""
    for text in (customers[1].get_id_display(), str(customers[1].pk)):
        form = RawPurchaseForm({"customer": text})
        assert form.is_valid(), form.errors
        assert form.cleaned_data["customer"] == customers[1]


def test_several_relations_in_any_form(customers: list[Customer]) -> None:
    """Texts and digits mixed, one row each."""
    first, second, _ = customers
    data = QueryDict(mutable=True)
    data["customer"] = first.get_id_display()
    data.setlist("watchers", [first.get_id_display(), str(first.pk), second.get_id_display()])
    form = PurchaseForm(data)
    assert form.is_valid(), form.errors
    assert set(form.save().watchers.all()) == {first, second}
    shown = IdModelMultipleChoiceField(Customer.objects.all())
    assert not shown.has_changed([first, second], data.getlist("watchers")[1:])


def test_bad_ids_of_relations_are_form_errors(customers: list[Customer]) -> None:
    """Of one and of many, Django's own field and ours: an error at the field."""
    single = forms.ModelChoiceField(Customer.objects.all())
    many = IdModelMultipleChoiceField(Customer.objects.all())
    for value in BAD:
        for field, given_value in ((single, value), (many, [value]), (many, value)):
            with pytest.raises(forms.ValidationError):
                field.clean(given_value)


def test_an_id_of_no_row_is_a_form_error(customers: list[Customer]) -> None:
    """It was read, and there is nothing."""
    for text in ("1", "cus_00000000001"):
        form = RawPurchaseForm({"customer": text})
        assert form.errors.as_data()["customer"][0].code == "invalid_choice"
        with pytest.raises(forms.ValidationError, match="not one of"):
            IdModelMultipleChoiceField(Customer.objects.all()).clean([text])


def test_a_field_other_than_the_key(customers: list[Customer]) -> None:
    """``to_field_name``, and a relation to a model whose key has another form."""
    purchase = Purchase.objects.create(customer=customers[0])
    choice = forms.ModelChoiceField(Purchase.objects.all(), to_field_name="stamp")
    assert choice.clean(str(purchase.stamp)) == purchase
    many = IdModelMultipleChoiceField(Purchase.objects.all(), to_field_name="stamp")
    assert list(many.clean([purchase.stamp])) == [purchase]
    bill = forms.modelform_factory(Bill, fields=["purchase"])(
        {"purchase": purchase.get_id_display()}
    )
    assert bill.is_valid(), bill.errors


def test_formsets_of_such_rows(customers: list[Customer]) -> None:
    """The hidden key comes back; one that was tampered with is an error and changes nothing."""
    formset_class = forms.modelformset_factory(Customer, fields=["name"], extra=0)
    shown = formset_class(queryset=Customer.objects.order_by("pk"))
    data: dict[str, Any] = {"form-TOTAL_FORMS": 3, "form-INITIAL_FORMS": 3}
    for number, form in enumerate(shown):
        data |= {f"form-{number}-id": form["id"].value(), f"form-{number}-name": "new"}
    saved = formset_class(data)
    assert saved.is_valid(), saved.errors
    saved.save()
    assert set(Customer.objects.values_list("name", flat=True)) == {"new"}
    for wrong in ("", "x", "1.5", "\x00", "9" * 30, "ord_00000000005"):
        formset = formset_class(data | {"form-1-id": wrong, "form-0-name": "bad"})
        assert not formset.is_valid()
    assert not Customer.objects.filter(name="bad").exists()
