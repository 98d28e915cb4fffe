"""Grants from a service over HTTP: what :mod:`..client` and the backends share."""
