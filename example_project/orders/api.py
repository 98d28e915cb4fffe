"""The shop's own API. Ids are strings in it, and nothing here says so."""

from __future__ import annotations

from typing import ClassVar

from rest_framework import serializers, viewsets

from .models import Customer, Order, OrderLine, Parcel


class CustomerSerializer(serializers.ModelSerializer[Customer]):
    class Meta:
        model = Customer
        fields: ClassVar[list[str]] = ["id", "name"]


class OrderLineSerializer(serializers.ModelSerializer[OrderLine]):
    class Meta:
        model = OrderLine
        fields: ClassVar[list[str]] = ["id", "article", "quantity"]


class OrderSerializer(serializers.ModelSerializer[Order]):
    lines = OrderLineSerializer(many=True, read_only=True)

    class Meta:
        model = Order
        fields: ClassVar[list[str]] = ["id", "customer", "lines", "parcels"]
        read_only_fields: ClassVar[list[str]] = ["parcels"]


class ParcelSerializer(serializers.ModelSerializer[Parcel]):
    class Meta:
        model = Parcel
        fields: ClassVar[list[str]] = ["id", "order", "grams"]


class CustomerViewSet(viewsets.ModelViewSet[Customer]):
    queryset = Customer.objects.order_by("-pk")
    serializer_class = CustomerSerializer


class OrderViewSet(viewsets.ModelViewSet[Order]):
    queryset = Order.objects.order_by("-pk").prefetch_related("lines", "parcels")
    serializer_class = OrderSerializer


class ParcelViewSet(viewsets.ModelViewSet[Parcel]):
    queryset = Parcel.objects.order_by("-pk")
    serializer_class = ParcelSerializer
