"""The models of the protocol hold, and each mistake in them is found."""

from __future__ import annotations

import shutil

import pytest

from ..servers import absent
from .mistakes import MISTAKES, MODELS, Mistake
from .models import Model, walk


@pytest.fixture(autouse=True)
def checker() -> None:
    if not (shutil.which("spin") and shutil.which("gcc")):
        absent("No spin or gcc. Install them: 'apt-get install spin gcc'.")


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(each, marks=[pytest.mark.long] if each.is_long else [], id=each.name)
        for each in MODELS
    ],
)
def test_nothing_repeats_in_any_order_of_steps(model: Model) -> None:
    """No tick and no id goes to two, no mark is lowered while held, ids rise (I1, I2, L1 to L7)."""
    found = walk(model.text(), model.bounds)
    assert not found.violated, "\n".join(found.story)
    assert found.states > 10_000


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.name)
def test_a_rule_that_is_left_out_is_found(mistake: Mistake) -> None:
    """Each rule is needed: without it the model repeats."""
    assert walk(mistake.text(), mistake.model.bounds, is_quick=True).violated
