"""``manage.py idgen_token``: make, replace and revoke access tokens for the HTTP API."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.utils import timezone
from django.utils.translation import override
from django.views.decorators.debug import sensitive_variables

from django_idgen.core.errors import IdgenError
from django_idgen.db.tables import with_way_out
from django_idgen.models import AccessToken
from django_idgen.process.maps import current_settings
from django_idgen.rest.tokens import (
    living_tokens,
    make_token,
    replace_living_token,
    replace_token,
    revoke_tokens,
    stored_tokens,
    warnings_about,
)

DURATION = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
LONGEST = 36_500 * 86400
"""Seconds."""
RIGHTS = ("tags", "generators", "leases")


class Command(BaseCommand):
    help = (
        "Make, list and revoke access tokens for ids over HTTP. The secret of a new token goes to "
        "standard output, alone and only once: it is not stored."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="make a token, and print its secret")
        create.add_argument("name", help="the client")
        for right, what in zip(RIGHTS, ("take ids of", "take ids of", "borrow from"), strict=True):
            create.add_argument(
                f"--{right}",
                nargs="+",
                action="extend",
                default=[],
                metavar="PATTERN",
                help=f"what it may {what}; '*' matches any characters",
            )
        create.add_argument(
            "--expires", type=duration, metavar="TIME", help="such as 12h, 90d (default: never)"
        )
        rotate = actions.add_parser("rotate", help="replace a client's token without a pause")
        rotated = rotate.add_mutually_exclusive_group(required=True)
        rotated.add_argument("name", nargs="?")
        rotated.add_argument("--id", type=int, help="a single token: see 'list'")
        rotate.add_argument(
            "--overlap",
            type=duration,
            default=timedelta(hours=1),
            metavar="TIME",
            help="how long the former one still works, such as 30m or 7d (default: 1h)",
        )
        revoke = actions.add_parser("revoke", help="refuse all tokens of a client, or one of them")
        which = revoke.add_mutually_exclusive_group(required=True)
        which.add_argument("name", nargs="?")
        which.add_argument("--id", type=int, help="a single token: see 'list'")
        actions.add_parser("list", help="show all tokens, without their secrets")

    def handle(self, *_args: Any, **options: Any) -> None:
        actions: dict[str, Callable[[dict[str, Any]], None]] = {
            "create": self._create,
            "rotate": self._rotate,
            "revoke": self._revoke,
            "list": self._list,
        }
        try:
            actions[options["action"]](options)
        except ValidationError as error:
            raise CommandError(f"No token was made. {_words(error)}") from error
        except IdgenError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(with_way_out(error)) from error

    @sensitive_variables("secret")
    def _create(self, options: dict[str, Any]) -> None:
        rights = {right: options[right] for right in RIGHTS}
        if not any(rights.values()):
            raise CommandError(
                "A token without rights is useless. Give --tags, --generators or --leases; "
                "--tags '*' allows all tags."
            )
        expires = options["expires"]
        expires_at = None if expires is None else timezone.now() + expires
        token, secret = make_token(options["name"], **rights, expires_at=expires_at)
        self._show(token, secret)
        with override(None):  # commands write English
            for warning in warnings_about(token):
                self.stderr.write(warning)

    def _rotate(self, options: dict[str, Any]) -> None:
        name, pk, overlap = options["name"], options["id"], options["overlap"]
        try:
            made = (
                replace_token(name, overlap=overlap)
                if pk is None
                else replace_living_token(living_tokens().get(pk=pk), overlap=overlap)
            )
        except AccessToken.DoesNotExist:
            raise (_unknown(name) if pk is None else _unknown_id(pk)) from None
        self._show(*made)
        end = timezone.now() + overlap
        self.stderr.write(
            f"The former ones of {made[0].name!r} with these rights work until {_moment(end)}."
        )

    def _revoke(self, options: dict[str, Any]) -> None:
        name, pk = options["name"], options["id"]
        chosen = stored_tokens().filter(name=name) if pk is None else stored_tokens().filter(pk=pk)
        if not chosen.exists():
            raise _unknown(name) if pk is None else _unknown_id(pk)
        revoked = revoke_tokens(chosen)
        age = current_settings().rest.token_max_age
        self.stdout.write(
            f"{revoked} revoked. All processes that reach the database refuse revoked tokens "
            f"within {age:g} s."
            if revoked
            else "There is nothing to do: already revoked or expired."
        )

    def _list(self, _options: dict[str, Any]) -> None:
        now = timezone.now()
        for token in stored_tokens().order_by("name", "pk"):
            rights = "; ".join(
                f"{right}: {', '.join(getattr(token, right).splitlines())}"
                for right in RIGHTS
                if getattr(token, right)
            )
            self.stdout.write(
                f"{token.pk}  {token.name}  …{token.hint}  {_state(token, now)}  {rights}"
            )

    @sensitive_variables("secret")
    def _show(self, token: AccessToken, secret: str) -> None:
        self.stderr.write(
            f"Token {token.pk} for {token.name!r}. Keep its secret now: it can't be shown again."
        )
        self.stdout.write(secret)


def duration(text: str) -> timedelta:
    """``90s``, ``30m``, ``12h``, ``7d``, ``4w``."""
    found = DURATION.fullmatch(text)
    seconds = int(found[1]) * UNITS[found[2]] if found else -1
    if not 0 <= seconds <= LONGEST:
        raise ArgumentTypeError(
            f"{text!r} is not a duration: give a number and s, m, h, d or w, such as 30m or 7d; "
            f"100 years at most"
        )
    return timedelta(seconds=seconds)


def _unknown(name: str) -> CommandError:
    names = sorted(set(living_tokens().values_list("name", flat=True)))
    known = f"There are tokens of {', '.join(map(repr, names))}." if names else "There are none."
    return CommandError(
        f"{name!r} has no token that works. {known} 'manage.py idgen_token create' makes one."
    )


def _unknown_id(pk: int) -> CommandError:
    return CommandError(
        f"There is no token {pk} that works. 'manage.py idgen_token list' shows them all."
    )


def _state(token: AccessToken, now: datetime) -> str:
    if token.expires_at is None:
        return "never expires"
    verb = "expires" if token.expires_at > now else "ended"
    return f"{verb} {_moment(token.expires_at)}"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _words(error: ValidationError) -> str:
    if hasattr(error, "error_dict"):
        return " ".join(
            f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items()
        )
    return " ".join(error.messages)
