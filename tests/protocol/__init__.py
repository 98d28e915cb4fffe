"""The protocol as models in Promela, which ``spin`` checks whole: every order of every step.

``leases.pml`` is one worker id in a database that may fail over; ``sub_leases.pml`` a registry that
forgets, and the database that lends to it; ``segments.pml`` a tag with its pool. Each has mistakes
(:mod:`.mistakes`): one line of the protocol left out, which spin has to find.

``python -m tests.protocol`` checks all of them, and tells a mistake's shortest story on request.
"""
