"""URL modules that answer as earlier id servers do, so that their clients change only the address.

None of them is served unless it is mounted::

    path("", include(leaf.urls()))

Callers authenticate as for the native API; ``urls(authentication=None)`` leaves the
door open, of which a system check warns.
"""
