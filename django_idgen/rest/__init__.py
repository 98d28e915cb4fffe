"""Ids over HTTP, with Django REST framework: ``pip install "django-idgen[drf]"``."""
