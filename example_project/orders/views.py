"""Two pages for a browser: the latest orders, and one order as its API gives it."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from .models import Order


def latest(request: HttpRequest) -> HttpResponse:
    found = Order.objects.order_by("-pk")[:20]
    return render(request, "orders/latest.html", {"orders": found, "api": settings.HAS_REST})


def order(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Order, pk=pk)
    return render(request, "orders/order.html", {"order": found, "api": settings.HAS_REST})
