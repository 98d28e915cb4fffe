from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin

from django_idgen.strings.id_admin import CreatedListFilter, IdAdminMixin

from .models import Invoice, Order, OrderLine


class OrderLineInline(admin.TabularInline):
    model = OrderLine
    extra = 1


@admin.register(Order)
class OrderAdmin(IdAdminMixin, admin.ModelAdmin):
    list_display: ClassVar[list[str]] = ["id", "customer", "placed_at"]
    list_filter: ClassVar[list[Any]] = [("id", CreatedListFilter)]
    search_fields: ClassVar[list[str]] = ["customer"]
    inlines: ClassVar[list[type[OrderLineInline]]] = [OrderLineInline]


@admin.register(Invoice)
class InvoiceAdmin(IdAdminMixin, admin.ModelAdmin):
    list_display: ClassVar[list[str]] = ["id", "order", "amount"]
    search_fields: ClassVar[list[str]] = ["order__id"]
    raw_id_fields: ClassVar[list[str]] = ["order"]
