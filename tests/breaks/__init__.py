"""Deliberate breaks of safety, and the tests that each of them turns red.

``python -m tests.breaks`` copies the project, applies one break after the other to the
copy, and runs the tests that have to fail then. A break that no test finds is a line that
anybody could lose without a word from the suite.
"""
