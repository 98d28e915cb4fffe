"""The registries that the page on the architecture shows: without Django."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "SHOWN", "DocumentLeases", "JsonLeases"]

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
SHOWN = re.findall(
    r"```python\n([^`]*class (?:Json|Document)Leases.*?)```", PAGE.read_text(), re.DOTALL
)

_module: dict[str, Any] = {"__name__": __name__}
for text in SHOWN:
    exec(compile(text, str(PAGE), "exec"), _module)
JsonLeases: Any = _module["JsonLeases"]
DocumentLeases: Any = _module["DocumentLeases"]
