"""Ids as text in other libraries: DRF, ninja, django-filter, JSON, the admin.

Imports fields and process. Only ``apps`` and ``rest`` import it.
"""
