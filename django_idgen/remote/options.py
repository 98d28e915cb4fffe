"""How to reach a service: addresses, the secret, limits and TLS, each checked when it is given."""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..core.errors import ConfigurationError

__all__ = ["Token", "base_urls_of", "seconds_of", "token_of"]

MOST_URLS = 16
MOST_SECRET = 4096
MOST_SECONDS = 60.0

Token = str | Callable[[], str]
"""An access token, or what is asked for it before each request."""


def base_urls_of(value: object) -> tuple[str, ...]:
    """``value``, an address or a list of them, each with a slash at its end.

    Raises :class:`ConfigurationError`.
    """
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, Sequence) or not 1 <= len(urls) <= MOST_URLS:
        raise ConfigurationError(
            f"'base_urls' must be the address where the service is mounted, such as "
            f"'https://ids.example.com/idgen/', or a list of 1 to {MOST_URLS} of them, not "
            f"{_shown(value)}."
        )
    found = tuple(_base_url(url) for url in urls)
    if len(set(found)) < len(found):
        raise ConfigurationError(f"'base_urls' has an address twice: {', '.join(found)}.")
    return found


def _base_url(url: object) -> str:
    parts = None
    if isinstance(url, str) and url.isprintable() and " " not in url:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"{_shown(url)} in 'base_urls' is no address: it must be such as "
            f"'https://ids.example.com/idgen/'."
        )
    if parts.username is not None or parts.query or parts.fragment:
        # Without the address itself: there may be a secret in it.
        raise ConfigurationError(
            f"The address of {parts.hostname!r} in 'base_urls' must end with its path: URLs are "
            f"logged, so that a user, password or query has no place there. Use 'token'."
        )
    return str(url).rstrip("/") + "/"


def _shown(value: object) -> str:
    """``value`` for an error, unless it has a user, a password or a query in it."""
    text = repr(value)
    return "what was given" if "@" in text or "?" in text else text


def token_of(token: Token | None, token_env: str | None, token_file: str | None) -> TokenReader:
    """What reads the secret before each request, so that it can be replaced at any time.

    Raises :class:`ConfigurationError` unless one of the three is given, or none.
    """
    if sum(given is not None for given in (token, token_env, token_file)) > 1:
        raise ConfigurationError("Of 'token', 'token_env' and 'token_file' only one can be given.")
    for name, value in (("token_env", token_env), ("token_file", token_file)):
        if value is not None and (not isinstance(value, (str, os.PathLike)) or not value):
            raise ConfigurationError(f"{name!r} must be a name, not {value!r}.")
    if token is None or callable(token):
        return TokenReader(token, token_env, token_file)
    text = _checked_secret(token, "'token'")
    return TokenReader(lambda: text, None, None)


@dataclass(frozen=True, slots=True, repr=False)
class TokenReader:
    """Reads an access token from where it is kept. Never shows it."""

    ask: Callable[[], str] | None
    variable: str | None
    path: str | None

    def read(self) -> str | None:
        """The token as it is now; None if there is to be none.

        Raises :class:`ConfigurationError` if it is missing, or can't be sent.
        """
        if self.variable is not None:
            where = f"The environment variable {self.variable!r}"
            return _checked_secret(os.environ.get(self.variable), where)
        if self.path is not None:
            return _checked_secret(self._of_file(), f"The file {str(self.path)!r}")
        if self.ask is not None:
            return _checked_secret(self.ask(), "What 'token' returned")
        return None

    def _of_file(self) -> str:
        try:
            return Path(str(self.path)).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"The access token can't be read from {str(self.path)!r}: {error}"
            ) from error


def _checked_secret(value: object, where: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MOST_SECRET:
        raise ConfigurationError(
            f"{where} is no access token: it must be a text of 1 to {MOST_SECRET} characters."
        )
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigurationError(f"{where} has characters that no access token has.")
    return value


def seconds_of(name: str, value: object) -> float:
    """``value`` if it is a number of seconds, above 0 and up to 60.

    Raises :class:`ConfigurationError`.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= MOST_SECONDS or math.isnan(value):  # type: ignore[operator,arg-type]
        raise ConfigurationError(
            f"{name!r} must be a number of seconds above 0, up to {MOST_SECONDS:g}, not {value!r}."
        )
    return float(value)  # type: ignore[arg-type]


def tls_of(
    verify: bool | str | ssl.SSLContext, cert: str | Sequence[str] | None
) -> bool | ssl.SSLContext:
    """What httpx is told: whether, and by what, a server's certificate is checked.

    ``cert`` is the path of a client certificate with its key, or both paths (and the
    key's password). Raises :class:`ConfigurationError`.
    """
    if isinstance(verify, ssl.SSLContext) or (isinstance(verify, bool) and cert is None):
        return verify
    try:
        context = ssl.create_default_context(cafile=None if verify is True else _path(verify))
        if verify is False:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if cert is not None:
            context.load_cert_chain(*([cert] if isinstance(cert, str) else cert))
    except (OSError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"TLS can't be set up with verify={verify!r} and the client certificate given: {error}"
        ) from error
    return context


def _path(verify: object) -> str | None:
    if verify is False:
        return None
    if not isinstance(verify, (str, os.PathLike)):
        raise TypeError("'verify' must be True, False, a path or an SSLContext")
    return os.fspath(verify)
