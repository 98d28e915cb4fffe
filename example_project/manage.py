#!/usr/bin/env python
"""Run a management command of the example project."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db import OperationalError
    from shop.databases import missing

    try:
        execute_from_command_line(sys.argv)
    except OperationalError as error:
        if (words := missing(error)) is None:
            raise
        raise SystemExit(words) from None
    except ImproperlyConfigured as error:
        raise SystemExit(str(error)) from None
