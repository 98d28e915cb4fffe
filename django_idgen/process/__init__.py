"""The maps of generators by alias and of segments by tag, their wiring, and fork and exit hooks.

The one room that knows both the settings and the backends: it imports all rooms below the pages.
"""
