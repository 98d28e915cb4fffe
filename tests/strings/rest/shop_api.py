"""An API that a user of the app would write: no serializer says a word of ids."""

from __future__ import annotations

from typing import Any

from django.urls import include, path
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.openapi import AutoSchema
from rest_framework import routers, serializers, viewsets
from rest_framework.pagination import PageNumberPagination

from tests.app.models import Document, Grade, Leg, Line, Order, Parcel, Receipt, Shipment, Tag


def serializer(model: Any, fields: Any = "__all__", *, name: str = "", **options: Any) -> Any:
    """A serializer of these fields, and nothing else."""
    meta = type("Meta", (), {"model": model, "fields": fields, **options})
    named = f"{name or model.__name__}Serializer"
    return type(named, (serializers.ModelSerializer,), {"Meta": meta})


SHOWN = ("lines", "shipments", "parcel")
OrderSerializer = serializer(
    Order,
    ["id", "pk", "note", "tags", "labels", *SHOWN],
    extra_kwargs={name: {"required": False} for name in ("tags", *SHOWN)},
    read_only_fields=SHOWN,
)
LineSerializer = serializer(Line, ["id", "order", "order_id", "text"])
ParcelSerializer = serializer(Parcel)
ShipmentSerializer = serializer(
    Shipment,
    ["id", "order", "previous", "receipt", "watchers", "legs"],
    read_only_fields=("legs",),
)
LegSerializer = serializer(Leg)
DeepSerializer = serializer(Leg, name="Deep", depth=1)
GradeSerializer = serializer(Grade)
ReceiptSerializer = serializer(Receipt)
DocumentSerializer = serializer(Document, ["folder", "number", "title"])


class DeclaredSerializer(serializers.ModelSerializer):
    """Relations as users declare them."""

    order = serializers.PrimaryKeyRelatedField(queryset=Order.objects.all())
    order_read = serializers.PrimaryKeyRelatedField(source="order", read_only=True)
    order_by_slug = serializers.SlugRelatedField(source="order", slug_field="id", read_only=True)
    previous = serializers.SlugRelatedField(
        slug_field="id", queryset=Shipment.objects, required=False, allow_null=True
    )
    watchers = serializers.PrimaryKeyRelatedField(
        many=True, queryset=Tag.objects.all(), required=False
    )
    watchers_read = serializers.PrimaryKeyRelatedField(source="watchers", many=True, read_only=True)
    legs = serializers.SlugRelatedField(slug_field="number", many=True, read_only=True)
    order_property = serializers.ReadOnlyField(source="order.id")
    previous_id = serializers.ReadOnlyField()
    title = serializers.StringRelatedField(source="order")
    number = serializers.IntegerField(source="id", read_only=True)
    order_number = serializers.PrimaryKeyRelatedField(
        source="order", read_only=True, pk_field=serializers.IntegerField()
    )

    class Meta:
        model = Shipment
        exclude = ("receipt",)


class LinkedSerializer(serializers.HyperlinkedModelSerializer):
    class Meta:
        model = Shipment
        fields = ("url", "id", "order", "previous")


class Pages(PageNumberPagination):
    page_size = 50


def viewset(serializer: Any, filters: Any = None) -> Any:
    """A view set of all rows, as a user has one a model."""
    model = serializer.Meta.model
    attributes = {
        "queryset": model.objects.order_by("pk"),
        "serializer_class": serializer,
        "pagination_class": Pages,
        "filter_backends": [DjangoFilterBackend],
        "filterset_fields": filters,
        "schema": AutoSchema(),
        "authentication_classes": [],
        "permission_classes": [],
    }
    return type(f"{serializer.__name__}Views", (viewsets.ModelViewSet,), attributes)


router = routers.DefaultRouter()
MOMENTS = ["created__gte", "created__lte", "created__range", "created__date"]
EXACT = ["exact"]
router.register(
    "orders",
    viewset(
        OrderSerializer,
        {
            "id": ["exact", "in", "gt", "range", "isnull", *MOMENTS],
            **dict.fromkeys(("tags", "shipments", "note"), EXACT),
        },
    ),
    "order",
)
router.register(
    "lines",
    viewset(LineSerializer, {"order": ["exact", "in"], "order__id": ["created__gte"]}),
    "line",
)
router.register("parcels", viewset(ParcelSerializer, ["order"]), "parcel")
router.register(
    "shipments",
    viewset(
        ShipmentSerializer,
        {
            "id": ["exact", "in", "lt", "range"],
            "previous": ["exact", "isnull"],
            "previous__id": ["exact", "in"],
            **dict.fromkeys(("order", "receipt", "watchers", "legs"), EXACT),
        },
    ),
    "shipment",
)
router.register("legs", viewset(LegSerializer, ["shipment", "number"]), "leg")
router.register("nested", viewset(DeepSerializer), "nested")
router.register("declared", viewset(DeclaredSerializer), "declared")
router.register("linked", viewset(LinkedSerializer), "linked")
router.register("grades", viewset(GradeSerializer), "grade")
router.register("receipts", viewset(ReceiptSerializer), "receipt")
router.register("documents", viewset(DocumentSerializer), "document")

urlpatterns = [
    path("", include(router.urls)),
]
