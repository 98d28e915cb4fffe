"""One tag over several databases, each of which gives out its own remainder."""

from .source import ShardedSource

__all__ = ["ShardedSource"]
