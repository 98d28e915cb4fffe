"""Ids as text where libraries take or show them: DRF, ninja, django-filter, JSON, the admin.

Imports fields and process. Nothing else of this app imports it but ``apps`` and ``rest``.
"""
