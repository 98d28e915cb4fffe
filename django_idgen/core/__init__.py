"""Grants, leases, layouts and generators: the standard library alone.

Nothing here knows of Django, of a database or of a network: time and I/O are
parameters. See ``docs/architecture.md`` for how the parts fit.
"""
