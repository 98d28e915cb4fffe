"""Segments kept ready in Redis, in front of the source that they come from."""

from .source import PoolSource

__all__ = ["PoolSource"]
