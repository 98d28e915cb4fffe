"""Our own connections, transactions and tables, and what SQL says differently on each database.

Rooms above (leases, sources, ops) call this one. It imports core and settings.
"""
