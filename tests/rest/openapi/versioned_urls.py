from django.urls import include, path

urlpatterns = [path("api/<str:version>/idgen/", include("django_idgen.rest.urls"))]
