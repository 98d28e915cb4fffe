from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin

from django_idgen.strings.id_admin import CreatedListFilter, IdAdminMixin

from .models import Customer, Order, OrderLine, Parcel


class OrderLineInline(admin.TabularInline):
    model = OrderLine
    extra = 1


@admin.register(Customer)
class CustomerAdmin(IdAdminMixin, admin.ModelAdmin):
    list_display: ClassVar[list[str]] = ["id", "name"]
    search_fields: ClassVar[list[str]] = ["name"]


@admin.register(Order)
class OrderAdmin(IdAdminMixin, admin.ModelAdmin):
    list_display: ClassVar[list[str]] = ["id", "customer"]
    list_filter: ClassVar[list[Any]] = [("id", CreatedListFilter)]
    search_fields: ClassVar[list[str]] = ["customer__name"]
    autocomplete_fields: ClassVar[list[str]] = ["customer"]
    inlines: ClassVar[list[type[OrderLineInline]]] = [OrderLineInline]


@admin.register(Parcel)
class ParcelAdmin(IdAdminMixin, admin.ModelAdmin):
    list_display: ClassVar[list[str]] = ["id", "order", "grams"]
    search_fields: ClassVar[list[str]] = ["order__id"]
    raw_id_fields: ClassVar[list[str]] = ["order"]
