"""What holds for the core's tests where they run alone, without the whole suite's fixtures."""

from __future__ import annotations

from tests.tiers import load_hypothesis_profile

load_hypothesis_profile()
