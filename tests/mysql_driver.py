"""A driver for MariaDB where mysqlclient is not installed."""

from __future__ import annotations


def use_pymysql_for_mysqlclient() -> None:
    """Have Django find PyMySQL, unless mysqlclient is there. Called by the tests' settings."""
    try:
        import MySQLdb  # noqa: F401
    except ImportError:
        import pymysql

        pymysql.version_info = (2, 2, 1, "final", 0)  # what Django asks of mysqlclient
        pymysql.install_as_MySQLdb()
        # It would load the host's certificates at each connect, and be slower than the fetch.
        pymysql.connections.SSL_ENABLED = False
