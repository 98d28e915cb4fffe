"""Copies of fields (hazard 107). Run by name: they need ``ledger_settings`` and PostgreSQL."""

from __future__ import annotations

from io import StringIO

from django.apps import apps
from django.core.checks import run_checks
from django.core.management import call_command
from django.db.migrations.state import ProjectState
from django.test import TestCase
from rest_framework.serializers import ModelSerializer

from django_idgen import segments
from ledger.models import CreditNote, GiftCard, Invoice, Parcel, Receipt, Ticket


def json_of(row: object, *names: str) -> dict[str, object]:
    """What a serializer without any field of its own makes of the row."""
    meta = type("Meta", (), {"model": type(row), "fields": names})
    return dict(type("Serializer", (ModelSerializer,), {"Meta": meta})(row).data)


class CopyTests(TestCase):
    def test_a_history_has_the_values_and_texts_of_the_row(self) -> None:
        """Of simple_history and of pghistory; a NULL stays NULL."""
        card = GiftCard.objects.create(name="a")
        GiftCard.objects.update(public_id=None)
        empty = GiftCard.objects.get()
        empty.save()
        later, first = card.history.all()
        self.assertEqual((first.id, first.public_id), (card.pk, card.public_id))
        self.assertIsNone(later.public_id)
        self.assertEqual(first.get_id_display(), card.get_id_display())
        parcel = Parcel.objects.create()
        Parcel.objects.update(label=None)
        after, before = parcel.events.order_by("-pgh_id")
        self.assertEqual((before.id, before.label, after.label), (parcel.pk, parcel.label, None))
        self.assertEqual(before.get_id_display(), parcel.get_id_display())

    def test_json_is_that_of_the_row(self) -> None:
        """Also where the package made a plain column of the key."""
        card = GiftCard.objects.create(name="a")
        ticket = Ticket.objects.create(card=card)
        parcel = Parcel.objects.create()
        for row, copies in (
            (card, [card.history.get()]),
            (ticket, [ticket.history.get(), ticket.events.get()]),
            (parcel, [parcel.events.get()]),
        ):
            for copy in copies:
                self.assertEqual(json_of(copy, "id"), json_of(row, "id"))
                self.assertIsInstance(json_of(copy, "id")["id"], str)
        self.assertEqual(json_of(ticket.history.get(), "card"), json_of(ticket, "card"))

    def test_a_copy_takes_no_ids(self) -> None:
        """No tag is made for it, and a copy without values gets none."""
        card = GiftCard.objects.create(name="a")
        names = {tag for tag in segments.fields if tag.startswith("ledger.")}
        self.assertEqual(
            names,
            {"ledger.giftcard", "ledger.parcel", "ledger.invoice", "ledger.receipt"},
        )
        copy = type(card.history.get())()
        self.assertEqual((copy.id, copy.public_id), (None, None))
        self.assertFalse(copy._meta.get_field("public_id").has_default())

    def test_nothing_is_said_of_copies(self) -> None:
        """Neither by the checks nor by the doctor."""
        Ticket.objects.create(card=GiftCard.objects.create(name="a"))
        found = [each for each in run_checks() if str(each.id).startswith("django_idgen")]
        self.assertEqual(found, [])
        out = StringIO()
        call_command("idgen_doctor", only=["tags"], stdout=out)
        self.assertIn("All is well", out.getvalue())

    def test_inheritance_and_migrations_copy_nothing(self) -> None:
        """Fields of an abstract model, of a parent table and of migration states are no copies."""
        first = [model.objects.create().number for model in (Invoice, Receipt)]
        self.assertEqual(first, [1, 1])
        note = CreditNote.objects.create(reason="a")
        self.assertEqual((note.number, note.pk), (2, note.invoice_ptr_id))
        state = ProjectState.from_apps(apps).apps
        for model in ("invoice", "receipt", "creditnote"):
            if model != "creditnote":
                field = state.get_model("ledger", model)._meta.get_field("number")
                self.assertIsNone(field.copied_from)
                self.assertEqual(field.resolved_tag, f"ledger.{model}")
