"""What ``manage.py idgen_doctor`` looks at, one examination a module, and what it can mend."""
