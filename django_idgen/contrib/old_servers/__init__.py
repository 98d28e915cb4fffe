"""URL modules that answer as earlier id servers do, so that clients change only the address.

Mount those that you need::

    path("", include(leaf.urls()))

Callers authenticate as for the native API. ``urls(authentication=None)`` lets anybody in, and a
system check warns of it.
"""

from ...core.errors import ConfigurationError

try:
    import rest_framework  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "rest_framework":
        raise
    raise ConfigurationError(
        f"{__name__} needs Django REST framework: pip install 'django-idgen[drf]'."
    ) from error
