"""The registry that the page on the architecture shows: for one host, without Django."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "SHOWN", "JsonLeases"]

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
(SHOWN,) = re.findall(r"```python\n([^`]*JsonLeases.*?)```", PAGE.read_text(), re.DOTALL)

_module: dict[str, Any] = {"__name__": __name__}
exec(compile(SHOWN, str(PAGE), "exec"), _module)
JsonLeases: Any = _module["JsonLeases"]
