from django.contrib import admin

from django_idgen.strings.id_admin import CreatedListFilter, IdAdminMixin
from tests.app.models import Bill, Counter, Customer, GiftCard, Line, Order, Purchase, Redemption


class LineInline(admin.TabularInline):
    model = Line
    extra = 1


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    fields = ("id", "note")
    readonly_fields = ("id",)
    inlines = (LineInline,)


admin.site.register(Counter)


# --- models whose ids have text forms -------------------------------------------


@admin.register(Customer)
class CustomerAdmin(IdAdminMixin, admin.ModelAdmin):
    search_fields = ("name",)


class BillInline(admin.TabularInline):
    model = Bill
    fields = readonly_fields = ("id", "purchase_id")
    extra = 0


@admin.register(Purchase)
class PurchaseAdmin(IdAdminMixin, admin.ModelAdmin):
    list_display = ("id", "customer_id", "customer", "stamp", "note")
    list_display_links = ("id",)
    list_filter = (("id", CreatedListFilter), ("customer__id", CreatedListFilter))
    search_fields = ("note", "=customer__id")
    ordering = ("id",)  # autocomplete shows it in pages
    raw_id_fields = ("customer", "watchers")
    inlines = (BillInline,)

    def get_readonly_fields(self, request, obj=None):
        """Of its own, as many admins have: the mixin must not depend on its name."""
        return ("id", "stamp")


@admin.register(Bill)
class BillAdmin(IdAdminMixin, admin.ModelAdmin):
    autocomplete_fields = ("purchase",)


@admin.register(GiftCard)
class GiftCardAdmin(IdAdminMixin, admin.ModelAdmin):
    list_display = ("id", "note")


@admin.register(Redemption)
class RedemptionAdmin(IdAdminMixin, admin.ModelAdmin):
    raw_id_fields = ("card",)
