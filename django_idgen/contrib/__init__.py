"""Whole features that only commands, settings and URLs name; no other room imports them."""
