"""The live page with its feed, and one order as its API gives it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from django_idgen import generators
from django_idgen.strings.json_encoder import IdJSONEncoder

from .models import Customer, Order, Parcel
from .selling import sell

SHOWN = 12
MOST = 100


def live(request: HttpRequest) -> HttpResponse:
    generator: Any = generators["default"]
    shown = {"bits": generator.layout.fields, "api": settings.HAS_REST}
    return render(request, "orders/live.html", shown)


def feed(_request: HttpRequest) -> JsonResponse:
    """The newest orders, for the live page. Ids become strings, which JavaScript reads right."""
    orders = Order.objects.order_by("-pk").select_related("customer").prefetch_related("parcels")
    try:
        shop = {
            "orders": [_shown(order) for order in orders[:SHOWN]],
            "totals": {
                model._meta.model_name: model._default_manager.count()
                for model in (Customer, Order, Parcel)
            },
        }
    except DatabaseError as error:
        words = f"{str(error).strip()}. If a table is missing, run: python manage.py migrate"
        return JsonResponse({"problem": words}, status=503)
    return JsonResponse(shop, encoder=IdJSONEncoder)


def _shown(order: Order) -> dict[str, Any]:
    parts = order.parts
    return {
        "id": order.pk,
        "created": parts.created.isoformat(timespec="milliseconds"),
        "worker": parts.worker,
        "sequence": parts.sequence,
        "customer": {"id": order.customer.get_id_display(), "name": order.customer.name},
        "parcels": [parcel.pk for parcel in order.parcels.all()],
    }


@require_POST
def place(request: HttpRequest) -> HttpResponse:
    """Place as many orders as the button says."""
    count = request.POST.get("count", "1")
    with transaction.atomic():
        for _ in range(min(int(count), MOST) if count.isdecimal() else 1):
            sell()
    return redirect("live")


def order(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Order.objects.select_related("customer"), pk=pk)
    return render(request, "orders/order.html", {"order": found, "api": settings.HAS_REST})
