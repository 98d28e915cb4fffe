"""Faults of packages from the package index, shown by the tests that this one passes."""
