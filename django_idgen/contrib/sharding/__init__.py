"""A tag shared by several databases, each of which gives out its own remainder."""

from .source import ShardedSource, TicketGenerator

__all__ = ["ShardedSource", "TicketGenerator"]
