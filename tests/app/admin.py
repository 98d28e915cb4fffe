from django.contrib import admin

from tests.app import text_admin as text_admin
from tests.app.models import Counter, Line, Order


class LineInline(admin.TabularInline):
    model = Line
    extra = 1


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    fields = ("id", "note")
    readonly_fields = ("id",)
    inlines = (LineInline,)


admin.site.register(Counter)
