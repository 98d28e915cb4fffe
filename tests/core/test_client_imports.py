"""The client works without Django, and says what it lacks without httpx."""

from __future__ import annotations

import importlib.util

import pytest

from tests.core.test_imports import run_blocked

BLOCK_HTTPX = """
class NoHttpx(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"httpx", "httpcore"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoHttpx())
"""


def test_without_httpx_the_client_says_what_to_install():
    """An error of settings that names the extra, for the client and both backends."""
    out = run_blocked(
        BLOCK_HTTPX
        + """
from django_idgen.core.errors import ConfigurationError
for name in ("client", "sources.http", "leases.http"):
    try:
        importlib.import_module(f"django_idgen.{name}")
    except ConfigurationError as error:
        print(error)
"""
    )
    lines = out.strip().splitlines()
    assert len(lines) == 3
    assert all('pip install "django-idgen[client]"' in line and "httpx" in line for line in lines)


def test_the_client_is_made_without_django():
    """It imports and is set up, and tells what keeps it from ids, with Django out of reach."""
    if importlib.util.find_spec("httpx") is None:
        pytest.skip("httpx is not installed, as in the environment of the core alone.")
    out = run_blocked(
        """
        import socket
        from django_idgen.client import Client
        from django_idgen.core.errors import RegistryUnavailable, SegmentUnavailable
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}/idgen", token="idgen_x", wait=0.3) as client:
            for take in (client.next_id, client.segments["orders"].next_id):
                try:
                    take()
                except (RegistryUnavailable, SegmentUnavailable) as error:
                    print(type(error).__name__, f":{port}/idgen/" in str(error))
        print(sorted(name for name in sys.modules if name.split(".")[0] == "django"))
        """
    )
    assert out.splitlines() == ["RegistryUnavailable True", "SegmentUnavailable True", "[]"]
