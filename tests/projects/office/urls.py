import os

from django.contrib import admin
from django.urls import path

if os.environ.get("OFFICE_AUTODISCOVER"):
    admin.autodiscover()

urlpatterns = [path("admin/", admin.site.urls)]
