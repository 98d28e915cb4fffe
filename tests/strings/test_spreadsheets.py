"""django-import-export: a file that comes back finds the rows that were exported (hazard 109)."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from import_export.formats.base_formats import CSV, JSON, XLSX
from import_export.resources import ModelResource, modelresource_factory
from openpyxl import load_workbook

from django_idgen.strings.registration import register
from tests.app.models import GiftCard, Order, Receipt, Redemption

pytestmark = pytest.mark.django_db


def exported(model: Any, kind: Any) -> bytes:
    made = kind().export_data(modelresource_factory(model)().export(force_native_type=kind is XLSX))
    return made if isinstance(made, bytes) else made.encode()


def imported(model: Any, kind: Any, data: Any) -> Any:
    dataset = kind().create_dataset(data if kind is XLSX else data.decode())
    return modelresource_factory(model)().import_data(dataset, raise_errors=False)


@pytest.mark.parametrize("kind", [XLSX, CSV, JSON])
@pytest.mark.parametrize("model", [Order, GiftCard, Receipt])
def test_unchanged_rows_stay_the_same_rows(kind: Any, model: Any) -> None:
    """Keys past 2**53, scrambled ones, and ids beside another key."""
    model.objects.bulk_create([model() for _ in range(40)])
    before = list(model.objects.order_by("pk").values())
    result = imported(model, kind, exported(model, kind))
    assert not result.has_errors(), [error.error for error in result.row_errors()]
    assert (result.totals["new"], result.totals["delete"]) == (0, 0)
    assert list(model.objects.order_by("pk").values()) == before


@pytest.mark.parametrize("kind", [XLSX, CSV])
def test_relations_find_their_rows_again(kind: Any) -> None:
    """Of a foreign key, and of many to many."""
    cards = [GiftCard.objects.create() for _ in range(3)]
    use = Redemption.objects.create(card=cards[0])
    use.others.set(cards[1:])
    data = exported(Redemption, kind)
    use.others.clear()
    Redemption.objects.update(card=cards[2])
    assert not imported(Redemption, kind, data).has_errors()
    use.refresh_from_db()
    assert use.card == cards[0]
    assert set(use.others.all()) == set(cards[1:])


class Early(ModelResource):
    """Defined before the registration, as in an ``admin.py`` that the admin imports first."""

    class Meta:
        model = Redemption


register("import_export")


class ByNote(ModelResource):
    """Its cells have names of the rows, and no ids."""

    class Meta:
        model = Redemption
        widgets: ClassVar[Any] = {"card": {"field": "note"}, "others": {"field": "note"}}


def test_a_resource_that_was_defined_before_has_texts_too() -> None:
    card = GiftCard.objects.create()
    use = Redemption.objects.create(card=card)
    use.others.add(card)
    text = card.get_id_display()  # type: ignore[attr-defined]
    ((*cells,),) = Early().export()
    assert cells == [str(use.pk), text, text]


def test_rows_that_are_named_otherwise_keep_their_names() -> None:
    """An export of them can be imported."""
    card = GiftCard.objects.create(note="tea")
    use = Redemption.objects.create(card=card)
    use.others.add(card)
    data = ByNote().export()
    assert data[0] == (str(use.pk), "tea", "tea")
    assert not ByNote().import_data(data).has_errors()
    assert list(use.others.all()) == [card]


def test_no_number_of_a_scrambled_key_is_written() -> None:
    """Nor of what refers to one."""
    card = GiftCard.objects.create()
    use = Redemption.objects.create(card=card)
    use.others.add(card)
    text = card.get_id_display()  # type: ignore[attr-defined]
    assert f"\n{text}," in exported(GiftCard, CSV).decode().replace("\r", "")
    row = exported(Redemption, CSV).decode().splitlines()[1].split(",")
    assert row == [str(use.pk), text, text]


def cells(model: Any, *keys: object) -> Any:
    """An XLSX file whose rows have ``keys`` as a spreadsheet saves them."""
    from io import BytesIO

    book = load_workbook(BytesIO(exported(model, XLSX)))
    sheet = book.active
    for number, key in enumerate(keys, 2):
        sheet.cell(number, 1).value = key
    saved = BytesIO()
    book.save(saved)
    return saved.getvalue()


def test_a_number_that_a_spreadsheet_rounded_is_refused() -> None:
    """With the way out. One that it has exactly finds its row; an empty cell makes one."""
    first = Order.objects.create(pk=7)
    far = Order.objects.create()
    result = imported(Order, XLSX, cells(Order, 7.0, float(far.pk)))
    ((_, (error,)),) = result.row_errors()
    assert "Export the rows again" in str(error.error)
    assert set(Order.objects.all()) == {first, far}
    result = imported(Order, XLSX, cells(Order, 7.0, None))
    assert not result.has_errors()
    assert (result.totals["update"] + result.totals["skip"], result.totals["new"]) == (1, 1)
