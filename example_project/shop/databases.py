"""``SHOP_DATABASE_URL`` as a setting, and what is wrong with the database in one line."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

ENGINES = {
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}


def database(url: str, *, default_file: Path) -> dict[str, Any]:
    if url and "://" not in url:
        raise ImproperlyConfigured(
            f"SHOP_DATABASE_URL is no address. It begins with one of {', '.join(ENGINES)}, "
            "sqlite; such as postgres://postgres@127.0.0.1:5432/shop."
        )
    parts = urlsplit(url)
    if parts.scheme in {"", "sqlite"}:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": parts.path or str(default_file),
            # Several processes write at once: better to wait at the start of a
            # transaction than to fail in its middle.
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        }
    if parts.scheme not in ENGINES:
        raise ImproperlyConfigured(
            f"SHOP_DATABASE_URL begins with {parts.scheme!r}: it must be one of "
            f"{', '.join(ENGINES)}, sqlite."
        )
    try:
        port = parts.port
    except ValueError as error:
        raise ImproperlyConfigured(f"SHOP_DATABASE_URL can't be read: {error}.") from error
    engine = ENGINES[parts.scheme]
    if engine == "mysql" and find_spec("MySQLdb") is None:
        if find_spec("pymysql") is None:
            raise ImproperlyConfigured(
                "SHOP_DATABASE_URL needs a driver for MySQL and MariaDB: run 'pip install pymysql'."
            )
        import pymysql

        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": port or "",
    }


def missing(error: Exception) -> str | None:
    """How to make the database that ``error`` says is not there; None if it says something else."""
    from django.conf import settings

    found = settings.DATABASES["default"]
    name, host, user = found["NAME"], found.get("HOST"), found.get("USER")
    if f'database "{name}" does not exist' in str(error):
        command = [
            "createdb",
            *(["-h", host] if host else []),
            *(["-U", user] if user else []),
            name,
        ]
    elif f"Unknown database '{name}'" in str(error):
        command = [
            "mariadb-admin",
            *(["-h", host] if host else []),
            *(["-u", user] if user else []),
        ]
        command += ["create", name]
    elif "onnection refused" in str(error) or "Can't connect" in str(error):
        port = f":{found['PORT']}" if host and found.get("PORT") else ""
        return f"No database server answers at {host or 'the local socket'}{port}. Start it first."
    else:
        return None
    return f"There is no database {name!r} on that server. Make it: {shlex.join(command)}"
