"""What the admin, the commands and the REST API share: status, metrics, decoding, tags, doctor.

Imports the rooms below (process, leases, sources, db); the pages import it.
"""
