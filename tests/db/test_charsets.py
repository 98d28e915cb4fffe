"""A MariaDB whose tables lack characters of a tag."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import ConfigurationError, IdgenError
from tests.places import idgen_on
from tests.server_tools import execute, make_tables

LACKING = {"latin1": "订单", "gbk": "Straße", "utf8mb3": "\N{ADMISSION TICKETS}"}


@pytest.mark.parametrize("charset", LACKING)
def test_a_tag_outside_the_charset_is_refused_in_words(mariadb: str, charset: str) -> None:
    """At once: not as a server that can't be reached. Tags and ids that fit go on."""
    execute(mariadb, f"ALTER DATABASE CHARACTER SET {charset}")
    make_tables(mariadb)
    with override_settings(IDGEN=idgen_on(mariadb)):
        assert segments["orders"].next_id() == 1
        with pytest.raises(ConfigurationError, match=f"(?s)can't store.*{charset}.*utf8mb4"):
            segments[LACKING[charset]].next_id()
        assert segments["orders"].next_id() == 2
        assert generators["default"].next_id() > 0
        with pytest.raises(IdgenError):
            segments[LACKING[charset]].next_id()
    execute(mariadb, "ALTER DATABASE CHARACTER SET utf8mb4")
