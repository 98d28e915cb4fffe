"""Worker ids lent by Redis, out of what the database has lent to it (rule L6)."""

from .registry import RedisLeases

__all__ = ["RedisLeases"]
