from django.conf import settings
from django.contrib import admin
from django.urls import include, path, register_converter
from orders import views

from django_idgen.fields.converters import IdConverter

register_converter(IdConverter, "id")

urlpatterns = [
    path("", views.live, name="live"),
    path("live.json", views.feed, name="feed"),
    path("place", views.place, name="place"),
    path("orders/<id:pk>/", views.order, name="order"),
    path("admin/", admin.site.urls),
]

if settings.HAS_PROMETHEUS:
    import django_idgen.ops.metrics

    # For staff, and for Prometheus, which sends the token.
    urlpatterns.append(path("metrics", django_idgen.ops.metrics.view, name="metrics"))

if settings.HAS_REST:
    from orders.api import CustomerViewSet, OrderViewSet, ParcelViewSet
    from rest_framework.routers import DefaultRouter

    router = DefaultRouter()
    router.register("customers", CustomerViewSet)
    router.register("orders", OrderViewSet)
    router.register("parcels", ParcelViewSet)
    urlpatterns += [
        path("api/", include(router.urls)),
        # Ids for other services: see "Ids for other services" in the README.
        path("idgen/", include("django_idgen.rest.urls")),
    ]
