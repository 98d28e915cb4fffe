from django.urls import include, path

urlpatterns = [path("idgen/", include("django_idgen.rest.urls"))]
