"""What holds for the core's tests where they run alone, without the whole suite's fixtures."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says more of the machine, and of who else is on it, than of us.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
