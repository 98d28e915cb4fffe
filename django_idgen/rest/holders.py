"""Whose a worker id is that was lent over HTTP: the name of a token stands in its holder's label.

Tokens of one name are one owner, so that a new secret changes nothing. What an open mount lends
has no owner. The labels of processes that ask the registry themselves begin with no quote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..core.lease import OLD_CLIENTS
from .tokens import KnownToken

__all__ = ["MOST_LABEL", "OPEN", "Owner", "handed_over"]

MOST_LABEL = 200
"""Characters that a registry keeps of a holder's name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The tokens of one name; ``None``: all who come through open mounts."""

    name: str | None

    @classmethod
    def of(cls, token: KnownToken | None) -> Owner:
        return OPEN if token is None else cls(token.name)

    def label(self, holder: str) -> str:
        """That of a borrower which calls itself ``holder``."""
        return f"{json.dumps(self.name, ensure_ascii=False)} {holder}"

    def instance_label(self, namespace: str, name: str) -> str:
        """That of a CosId instance, which is known by it alone."""
        return OLD_CLIENTS + self.label(f"{json.dumps(namespace, ensure_ascii=False)} {name}")

    def has(self, label: str) -> bool:
        """Whether ``label`` is one of this owner's."""
        return label.removeprefix(OLD_CLIENTS).startswith(self.label(""))


OPEN = Owner(None)


def handed_over(label: str, giver: Owner, taker: Owner, instance: str | None = None) -> str | None:
    """What the label of a CosId instance of ``giver`` becomes; None for all other labels.

    ``instance``: of that one alone.
    """
    prefix = OLD_CLIENTS + giver.label("")
    if not label.startswith(prefix):
        return None
    rest = label.removeprefix(prefix)
    _, end = json.JSONDecoder().raw_decode(rest)
    if instance not in (None, rest[end + 1 :]):
        return None
    return OLD_CLIENTS + taker.label(rest)
