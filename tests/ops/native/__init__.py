"""Sequences of the database over ids of a tag."""
