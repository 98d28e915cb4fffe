from __future__ import annotations

from typing import ClassVar

from django.contrib import admin

from .models import Invoice, Order, OrderLine


class OrderLineInline(admin.TabularInline):
    model = OrderLine
    extra = 1


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display: ClassVar[list[str]] = ["id", "customer", "placed_at"]
    search_fields: ClassVar[list[str]] = ["=id", "customer"]
    inlines: ClassVar[list[type[OrderLineInline]]] = [OrderLineInline]


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    list_display: ClassVar[list[str]] = ["id", "order", "amount"]
    raw_id_fields: ClassVar[list[str]] = ["order"]
