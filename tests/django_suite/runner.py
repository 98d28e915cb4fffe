"""The test runner that says which tests failed, for a comparison."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from django.test.runner import DiscoverRunner


class Recording(DiscoverRunner):
    """Writes ``{"run": n, "failed": {id: the error's last line}}`` to ``SUITE_REPORT``."""

    def suite_result(self, suite: Any, result: Any, **kwargs: Any) -> Any:
        failed = {
            test.id(): error.strip().splitlines()[-1]
            for test, error in (*result.failures, *result.errors)
        }
        report = {"run": result.testsRun, "failed": failed}
        Path(os.environ["SUITE_REPORT"]).write_text(json.dumps(report))
        return super().suite_result(suite, result, **kwargs)
