"""Django's own tests, with keys of django_idgen beside ``BigAutoField``.

``python -m tests.django_suite`` takes the source distribution of the Django that is
installed, and runs those of its tests that are sensitive to keys: once as Django comes,
and once for each automatic field, as ``DEFAULT_AUTO_FIELD``. A test that fails with our
field alone must stand in ``differences.py``, with the reason.
"""
