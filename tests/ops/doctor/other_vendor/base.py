"""An engine of a vendor that Django does not ship."""

from __future__ import annotations

from django.db.backends.sqlite3 import base


class DatabaseWrapper(base.DatabaseWrapper):
    vendor = "another"
    display_name = "Another"
