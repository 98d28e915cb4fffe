from django.http import HttpRequest, JsonResponse
from django.urls import path

from .models import Invoice, Order


def buy(request: HttpRequest) -> JsonResponse:
    order = Order.objects.create(note="bought")
    invoice = Invoice.objects.create(order=order)
    return JsonResponse({"order": str(order.pk), "invoice": invoice.pk})


urlpatterns = [path("buy/", buy)]
