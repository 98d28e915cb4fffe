"""Requests to the services at several addresses, and what to do when one fails.

A request goes to the first address that is not known to be down. It goes to the next one only if
the first service certainly never saw it, or answered that it grants nothing. A lost answer is a
lost grant: nothing is sent again, and the next request goes to another address first.

All answers about a tag or a generator come from one installation, which each request names: two
databases would give out the same ids.
"""

from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Any, TypedDict, TypeVar
from urllib.parse import quote, urlsplit

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import ConfigurationError, IdgenError, sentence
from ..core.loader import process_lock
from ..core.options import check_flag, check_seconds
from .wire import Answer, Lost, NotSent, Refused, Wire

__all__ = [
    "CONNECT_TIMEOUT",
    "TIMEOUT",
    "Answer",
    "HttpLink",
    "LinkOptions",
    "Refused",
    "Token",
    "base_urls_of",
    "leases_path",
    "number_of",
    "shows_link_options",
    "way_out",
    "word_of",
]


T = TypeVar("T")

TIMEOUT = 3.0
"""Seconds that a call may take, with all addresses that it tries."""
CONNECT_TIMEOUT = 1.0
RETRY_AFTER = 30.0
"""Seconds that a failed address comes last."""
LIVE = "health/live"
"""A path that answers without a database and without a token."""
PASSED_ON = frozenset({401, 403, 404, 405, 429, 503})
"""Refusals that another address may not give."""
FINAL = frozenset({"no_free_worker", "skip_too_far"})
"""Codes of refusals that every address gives alike."""
HIGHEST = 2**64


@dataclass(slots=True)
class _Place:
    """One address, and until when it comes last."""

    url: str
    down_until: float = 0.0
    """Of the stopwatch."""


class LinkOptions(TypedDict, total=False):
    """The options of :class:`HttpLink` that a registry, a source and a client pass on."""

    token: Token | None
    timeout: float
    connect_timeout: float
    verify: bool | str | ssl.SSLContext
    trust_env: bool
    installation: str | Sequence[str] | None


class HttpLink:
    """Asks the services at ``base_urls``, one after the other. Thread-safe, and fork-safe.

    ``base_urls``: where the service's API is mounted (``https://ids.example.com/idgen/``), or a
    list of addresses of services in front of the same database. ``token``: an access token, or a
    function that returns it, called for each request. ``timeout`` (seconds) bounds a whole call,
    ``connect_timeout`` each attempt to connect. ``verify``: False, the path of a file of
    certificates to trust, or an ``SSLContext``. ``trust_env``: whether to use the environment's
    proxies (``HTTPS_PROXY``).

    ``installation``: the name of the installation whose ids the services lend, or a list of names
    where they have several databases. Several addresses need it. By default it is that of the
    first answer about a tag or a generator.

    Raises :class:`ConfigurationError` for what can't work. Opens nothing.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        *,
        token: Token | None = None,
        timeout: float = TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
        verify: bool | str | ssl.SSLContext = True,
        trust_env: bool = False,
        installation: str | Sequence[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.base_urls = base_urls_of(base_urls)
        self._expected = _installations_of(installation)
        if not self._expected and len(self.base_urls) > 1:
            raise ConfigurationError(
                "Several 'base_urls' need 'installation', the name of the one database that lends "
                "for all of them: two databases would give out the same ids. Look it up in the "
                "answer to GET generators/<alias>/leases or GET tags/<tag>/segment of the service."
            )
        self._met: dict[str, str] = {}
        """The installation of each tag and generator that a service has answered about."""
        self._token = token_reader(token)
        self._timeout = check_seconds("timeout", timeout, most=MOST_SECONDS)
        self._connect_timeout = check_seconds("connect_timeout", connect_timeout, most=MOST_SECONDS)
        # Only for https, since reading all certificates takes 20 ms.
        secure = any(url.startswith("https:") for url in self.base_urls)
        self._verify = _tls_of(verify) if secure else False
        self._trust_env = check_flag("trust_env", trust_env)
        self._clock = clock
        self._places = [_Place(url) for url in self.base_urls]
        self._wire: tuple[int, Wire] | None = None

    def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        of: str,
        unavailable: type[IdgenError],
    ) -> Answer:
        """The answer to a POST of ``body`` (a GET without one) of ``path``.

        ``of``: what it is about, such as "tag 'orders'". Raises :class:`Refused` if the service
        refuses, ``unavailable`` if none answers or an answer is lost, and
        :class:`ConfigurationError` if it is of another installation than earlier answers.
        """
        pinned = self.installation_of(of)
        if body is not None and pinned is not None:
            body = {**body, "installation": pinned}
        try:
            answer = self._answer(path, body, unavailable)
        except Refused as error:
            if error.code != "installation_mismatch":
                raise
            theirs = error.body.get("installation")
            raise _other_installation(of, error.body.get("expected"), theirs) from error
        self._pin(of, answer.body.get("installation"), unavailable)
        return answer

    def installation_of(self, what: str) -> str | None:
        """The installation that lends ``what``; None if no service has answered yet."""
        only = self._expected[0] if len(self._expected) == 1 else None
        return self._met.get(what, only)

    def _pin(self, what: str, found: object, unavailable: type[IdgenError]) -> None:
        if not isinstance(found, str) or not 1 <= len(found) <= MOST_NAME:
            raise unavailable(f"The service does not name its installation: {found!r:.80}.")
        if self._expected and found not in self._expected:
            raise _other_installation(what, " or ".join(self._expected), found)
        ours = self._met.setdefault(what, found)  # of two threads one is first
        if found != ours:
            raise _other_installation(what, ours, found)

    def _answer(
        self, path: str, body: Mapping[str, Any] | None, unavailable: type[IdgenError]
    ) -> Answer:
        deadline = self._clock.stopwatch() + self._timeout
        failures: list[str] = []
        refused: Refused | None = None
        cause: Exception | None = None
        for place in self._in_turn():
            if failures and self._clock.stopwatch() >= deadline:
                break
            try:
                answer = self._send(place, path, body, deadline)
            except NotSent as error:
                place.down_until = self._clock.stopwatch() + RETRY_AFTER
                failures.append(f"{place.url} can't be reached ({error})")
                cause = cause or error
            except Lost as error:
                place.down_until = self._clock.stopwatch() + RETRY_AFTER
                raise unavailable(self._lost(place, error, changes=body is not None)) from error
            except Refused as error:
                if error.status not in PASSED_ON or error.code in FINAL:
                    place.down_until = 0.0
                    raise
                refused = refused or error
                failures.append(f"{place.url} refused ({error})")
                if error.status == 503:
                    place.down_until = self._clock.stopwatch() + RETRY_AFTER
            else:
                place.down_until = 0.0
                return answer
        if refused is not None:
            raise refused
        raise unavailable(
            f"No service lends ids: {'; '.join(failures)}. Check that 'base_urls' is right, and "
            "that the services run."
        ) from cause

    def probes(self, *, unavailable: type[IdgenError]) -> Mapping[str, Callable[[], None]]:
        """By address: a function that raises ``unavailable`` if no django_idgen service answers."""
        return {
            f"service {place.url}": partial(self._ping, place, unavailable)
            for place in self._places
        }

    def abandon(self) -> None:
        """In the child of a fork: drop the parent's connections, and send nothing on them."""
        self._wire = None
        for place in self._places:
            place.down_until = 0.0

    def close(self) -> None:
        """Close the connections of this process. May be called twice; the next use reopens."""
        made, self._wire = self._wire, None
        if made is not None and made[0] == os.getpid():
            made[1].close()

    # --------------------------------------------------------------------------------

    def _in_turn(self) -> list[_Place]:
        """Addresses that are up, as listed; then the others, the one down longest first."""
        now = self._clock.stopwatch()
        up = [place for place in self._places if place.down_until <= now]
        down = [place for place in self._places if place.down_until > now]
        return up + sorted(down, key=lambda place: place.down_until)

    def _ping(self, place: _Place, unavailable: type[IdgenError]) -> None:
        deadline = self._clock.stopwatch() + self._timeout
        try:
            answer = self._send(place, LIVE, None, deadline)
        except (NotSent, Lost, Refused) as error:
            hint = way_out(error) if isinstance(error, Refused) else ""
            raise unavailable(f"{place.url} can't be used: {sentence(error)}{hint}") from error
        if answer.body.get("live") is not True:
            raise unavailable(
                f"What answers at {place.url} is not an idgen service. Check that 'base_urls' is "
                "where django_idgen.rest.urls is mounted."
            )

    def _send(
        self, place: _Place, path: str, body: Mapping[str, Any] | None, deadline: float
    ) -> Answer:
        nonce = token_hex(8)
        answer = self._connected().send(
            "GET" if body is None else "POST",
            place.url + path,
            None if body is None else {**body, "nonce": nonce},
            token=self._token(),
            connect_timeout=self._connect_timeout,
            deadline=deadline,
            elapsed_ns=self._clock.elapsed_ns,
        )
        if body is not None and answer.body.get("nonce") != nonce:
            # From a cache, or another client's: two processes would use one grant.
            raise Lost(
                "the answer is not that of this request: check whether a proxy caches answers"
            )
        return answer

    def _connected(self) -> Wire:
        made = self._wire
        # By process id, since uWSGI forks without Python's hooks.
        if made is None or made[0] != os.getpid():
            with process_lock():
                made = self._wire
                if made is None or made[0] != os.getpid():
                    wire = Wire(verify=self._verify, trust_env=self._trust_env)
                    made = self._wire = os.getpid(), wire
        return made[1]

    def _lost(self, place: _Place, error: Exception, *, changes: bool) -> str:
        given_up = " This process does not use what that answer may have granted." * changes
        lost = f"The answer of {place.url} was lost: {sentence(error)}"
        return f"{lost}{given_up} The next call asks again."


def shows_link_options(cls: type[T]) -> type[T]:
    """Show the options of :class:`HttpLink` in the signature of a class that passes them on."""
    own, link = inspect.signature(cls), inspect.signature(HttpLink).parameters
    known = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    passed = [link[name] for name in LinkOptions.__annotations__]
    cls.__signature__ = own.replace(parameters=[*known, *passed])  # type: ignore[attr-defined]
    return cls


def _installations_of(value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else [] if value is None else value
    if isinstance(names, Sequence) and all(
        isinstance(name, str) and 1 <= len(name) <= MOST_NAME for name in names
    ):
        return tuple(names)
    raise ConfigurationError(
        f"'installation' must be a name of 1 to {MOST_NAME} characters, or a list of names, not "
        f"{value!r}."
    )


def _other_installation(what: str, ours: object, theirs: object) -> ConfigurationError:
    return ConfigurationError(
        f"A service in 'base_urls' lends {what} for installation {theirs}, but this process takes "
        f"ids of installation {ours}. Two databases give out the same ids. Name only services of "
        "one database. If all of them use another database now, change 'installation', or restart "
        "this process if it is not set."
    )


def number_of(body: Mapping[str, Any], name: str, *, least: int = 0, most: int = HIGHEST) -> int:
    """A whole number of an answer. Raises :class:`ValueError` with its name."""
    value = body.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name!r} is {value!r:.80}, and should be {least} to {most}")
    return value


def word_of(body: Mapping[str, Any], name: str) -> str:
    """A text of an answer. Raises :class:`ValueError` without the text."""
    value = body.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= 128:
        raise ValueError(f"{name!r} is not a text of 1 to 128 characters")
    return value


def way_out(error: Refused) -> str:
    """What to do about a refusal; empty if unknown."""
    if error.status in (401, 403) and error.code not in FINAL:
        return " Check that the service knows the access token, and that the token allows this."
    if error.status == 404 and not error.code:
        return " Check that 'base_urls' is where django_idgen.rest.urls is mounted."
    return ""


def leases_path(generator: str) -> str:
    """The path of the leases of a generator of the service.

    Raises :class:`ConfigurationError` for what can't be an alias in a URL.
    """
    if not isinstance(generator, str) or not generator.strip(".") or "/" in generator:
        raise ConfigurationError(
            f"'generator' must be an alias of the service's GENERATORS without a slash, not "
            f"{generator!r}."
        )
    return f"generators/{quote(generator, safe='')}/leases"


MOST_URLS = 16
MOST_NAME = 64
MOST_SECRET = 4096
MOST_SECONDS = 60.0

Token = str | Callable[[], str]
"""An access token, or a function that returns it for each request."""


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
            f"{_shown(url)} in 'base_urls' is not an address such as "
            "'https://ids.example.com/idgen/'."
        )
    if parts.username is not None or parts.query or parts.fragment:
        # Without the address itself: there may be a secret in it.
        raise ConfigurationError(
            f"The address of {parts.hostname!r} in 'base_urls' must have no user, password or "
            "query, because URLs are logged. Use 'token'."
        )
    return str(url).rstrip("/") + "/"


def _shown(value: object) -> str:
    """``value`` for an error, unless it contains a user, a password or a query."""
    text = repr(value)
    return "what was given" if "@" in text or "?" in text else text


def token_reader(token: Token | None) -> Callable[[], str | None]:
    """What returns the present token; None if none is configured.

    It raises :class:`ConfigurationError` if ``token`` fails, or returns what can't be sent. So
    does this function for a text that can't be.
    """
    if token is None:
        return lambda: None
    if not callable(token):
        text = _checked_secret(token, "'token'")
        return lambda: text

    def read() -> str:
        try:
            found = token()
        except KeyError as error:  # of os.environ
            raise ConfigurationError(
                f"{error.args[0]} is not set, so 'token' returned no access token. Set it to one "
                f"that 'manage.py idgen_token create' of the service has printed."
            ) from error
        except Exception as error:
            raise ConfigurationError(
                f"'token' returned no access token: {type(error).__name__}: {error}"
            ) from error
        return _checked_secret(found, "What 'token' returned")

    return read


def _checked_secret(value: object, where: str) -> str:
    text = value.strip() if isinstance(value, str) else ""  # a file's text ends with a new line
    if not 1 <= len(text) <= MOST_SECRET:
        raise ConfigurationError(
            f"{where} is not an access token: it must be a string of 1 to {MOST_SECRET} characters."
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError(f"{where} has characters that an access token can't have.")
    return text


def _tls_of(verify: bool | str | ssl.SSLContext) -> bool | ssl.SSLContext:
    """What httpx takes for ``verify``. Raises :class:`ConfigurationError`."""
    if isinstance(verify, bool | ssl.SSLContext):
        return verify
    try:
        return ssl.create_default_context(cafile=os.fspath(verify))
    except (OSError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"'verify' must be True, False, the path of a file of certificates or an SSLContext, "
            f"not {verify!r}: {error}"
        ) from error
