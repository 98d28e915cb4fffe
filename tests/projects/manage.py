"""The sample project's ``manage.py``."""

import multiprocessing
import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project_settings")
    if "SHOP_START_METHOD" in os.environ:
        multiprocessing.set_start_method(os.environ["SHOP_START_METHOD"])
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
