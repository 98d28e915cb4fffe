"""The shop's own API. Ids are strings in it, and nothing here says so."""

from __future__ import annotations

from typing import ClassVar

from rest_framework import serializers, viewsets

from .models import Invoice, Order, OrderLine


class OrderLineSerializer(serializers.ModelSerializer[OrderLine]):
    class Meta:
        model = OrderLine
        fields: ClassVar[list[str]] = ["id", "article", "quantity"]


class OrderSerializer(serializers.ModelSerializer[Order]):
    lines = OrderLineSerializer(many=True, read_only=True)

    class Meta:
        model = Order
        fields: ClassVar[list[str]] = ["id", "customer", "placed_at", "lines", "invoices"]
        read_only_fields: ClassVar[list[str]] = ["invoices"]


class InvoiceSerializer(serializers.ModelSerializer[Invoice]):
    class Meta:
        model = Invoice
        fields: ClassVar[list[str]] = ["id", "order", "amount"]


class OrderViewSet(viewsets.ModelViewSet[Order]):
    queryset = Order.objects.order_by("-pk").prefetch_related("lines", "invoices")
    serializer_class = OrderSerializer


class InvoiceViewSet(viewsets.ModelViewSet[Invoice]):
    queryset = Invoice.objects.order_by("-pk")
    serializer_class = InvoiceSerializer
