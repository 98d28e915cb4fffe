from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from orders import views

urlpatterns = [
    path("", views.latest, name="latest"),
    path("orders/<int:pk>/", views.order, name="order"),
    path("admin/", admin.site.urls),
]

if settings.HAS_PROMETHEUS:
    import django_idgen.ops.metrics

    # For those who are logged in to the admin, and for whoever sends the token.
    urlpatterns.append(path("metrics", django_idgen.ops.metrics.view, name="metrics"))

if settings.HAS_REST:
    from orders.api import InvoiceViewSet, OrderViewSet
    from rest_framework.routers import DefaultRouter

    router = DefaultRouter()
    router.register("orders", OrderViewSet)
    router.register("invoices", InvoiceViewSet)
    urlpatterns += [
        path("api/", include(router.urls)),
        # Ids for other services: see "Ids for other services" in the README.
        path("idgen/", include("django_idgen.rest.urls")),
    ]
