"""Anything at all, where the package reads what others wrote: only its own errors come out."""
