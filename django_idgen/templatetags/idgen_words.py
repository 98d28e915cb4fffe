"""``{% load idgen_words %}``: how the admin's pages write rates, durations and counts."""

from __future__ import annotations

from django import template

from ..admin.tag_words import count_words, duration_words, pool_words, rate_words

__all__ = ["register"]

register = template.Library()


@register.filter
def rate(ids_a_second: float | None) -> str:
    """“12.3 / s”; a dash for None."""
    return rate_words(ids_a_second or 0.0)


@register.filter
def duration(seconds: float | None) -> str:
    """“~4 min”; a dash for None."""
    return duration_words(seconds)


@register.filter
def ids(count: int) -> str:
    """“12,000 ids”."""
    return count_words(count)


@register.filter
def pooled(count: int | None) -> str:
    """“12,000 ids”, “empty”; a dash for None."""
    return pool_words(count)
