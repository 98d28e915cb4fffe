"""URL modules that answer as earlier id servers do, so that clients change only the address.

Mount those that you need::

    path("", include(leaf.urls()))

Callers authenticate as for the native API. ``urls(authentication=None)`` lets anybody in, and a
system check warns of it.
"""
