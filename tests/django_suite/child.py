"""One run of Django's tests, in the folder in which they are. See ``__main__.py``."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from inspect import signature

OPTIONS = {"verbosity": 0, "parallel": 1}


def main(labels: list[str]) -> None:
    suite = import_module("runtests")
    os.environ.setdefault("TMPDIR", os.getcwd())
    if os.environ["SUITE_FIELD"].startswith("django_idgen."):
        suite.ALWAYS_INSTALLED_APPS.append("django_idgen")
    # What there is to say differs between Django's versions.
    known = signature(suite.django_tests).parameters
    options = {name: OPTIONS.get(name) for name in known}
    options |= {"test_labels": labels, "interactive": False}
    suite.django_tests(**options)


if __name__ == "__main__":
    main(sys.argv[1:])
