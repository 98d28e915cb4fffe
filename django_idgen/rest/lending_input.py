"""What clients send to borrow, checked field by field."""

from __future__ import annotations

import re
from typing import Any

from rest_framework import serializers

from ..core.lease import OLD_CLIENTS, Lease, Namespace
from ..core.segment import MAX_ID

__all__ = [
    "AcquireInput",
    "Fingerprint",
    "ReleaseInput",
    "RenewInput",
    "RenewSeenInput",
    "SegmentInput",
    "WholeNumber",
    "lease_of",
    "lease_words",
]

HIGHEST = 2**64
"""Floors and ticks past every id and every layout: they are told so, in words of their own."""
NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)
MOST_TOKEN = 128
MOST_HOLDER = 200
MOST_WORDS = 64


class WholeNumber(serializers.Field):  # type: ignore[type-arg]
    """A whole number, as a JSON number or as decimal text."""

    def __init__(self, *, least: int = 0, most: int = HIGHEST, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def to_internal_value(self, data: object) -> int:
        if isinstance(data, str) and NUMBER.fullmatch(data):
            data = int(data)
        whole = isinstance(data, int) and not isinstance(data, bool)
        if not whole or not self.least <= data <= self.most:  # type: ignore[operator]
            raise serializers.ValidationError(
                f"A whole number of {self.least} to {self.most} is needed, as a number or as text."
            )
        return data  # type: ignore[return-value]

    def to_representation(self, value: int) -> str:
        return str(value)


class Seconds(serializers.FloatField):
    """A number, no text: DRF 3.16 reads "nan", which lies within any bounds, and true as 1."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        try:
            return float(data)
        except OverflowError:
            self.fail("invalid")


class Words(serializers.CharField):
    """Text that any database can keep, taken as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("A text is needed.")
        text: str = super().to_internal_value(data)
        if not text.isprintable():
            raise serializers.ValidationError("Only printable characters are allowed.")
        return text


class Fingerprint(serializers.DictField):
    """Everything in which holders must not differ. What differs is refused by its name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_empty=False, **options)


class Asking(serializers.Serializer):  # type: ignore[type-arg]
    """What each request may say of itself."""

    nonce = Words(max_length=MOST_WORDS, required=False)
    """Comes back in the answer, which can't be mistaken for another one's then."""
    installation = Words(max_length=MOST_WORDS, required=False)
    """Whose ids the client has had so far: it is lent nothing of another one's."""


class SegmentInput(Asking):
    """``POST tags/<tag>/segment``."""

    tag = Words(max_length=128, required=False)
    """The tag once more, as no proxy can have changed it."""
    times = WholeNumber(most=1_000_000_000, default=1)
    at_least = WholeNumber(least=1, most=1_000_000_000, default=1)
    floor = WholeNumber(default=0)


class Settled(Asking):
    """What a holder has to agree on with its lender."""

    fingerprint = Fingerprint()
    window = WholeNumber(least=1)
    """The client's, in ticks: how often it renews follows from that."""
    ahead = WholeNumber(default=0)
    """How far past now the client may stamp (``max_ahead``), in ticks."""


class AcquireInput(Settled):
    """``POST generators/<alias>/leases``."""

    holder = Words(max_length=MOST_HOLDER, allow_blank=True, default="")
    not_before = WholeNumber(default=0)
    avoid = WholeNumber(most=MAX_ID, allow_null=True, default=None)

    def validate_holder(self, holder: str) -> str:
        if holder.startswith(OLD_CLIENTS):
            raise serializers.ValidationError(
                f"What begins with {OLD_CLIENTS!r} is an instance of CosId, and is known by its "
                f"name alone."
            )
        return holder


class LeaseInput(serializers.Serializer):  # type: ignore[type-arg]
    """A lease, as it was lent."""

    worker = WholeNumber(most=MAX_ID)
    token = Words(max_length=MOST_TOKEN)
    start = WholeNumber()
    until = WholeNumber()
    generation = WholeNumber(most=2**31 - 1)


class RenewInput(Settled):
    """``POST generators/<alias>/leases/renew``."""

    lease = LeaseInput()
    last_tick = WholeNumber()


class ReleaseInput(Asking):
    """``POST generators/<alias>/leases/release``."""

    lease = LeaseInput()


class RenewSeenInput(Settled):
    """``POST generators/<alias>/leases/renew-seen``."""

    idle_after = Seconds(min_value=0.0, max_value=1e6)


def lease_of(words: dict[str, Any], namespace: Namespace) -> Lease:
    """The lease that a client says it has."""
    return Lease(namespace.name, **words)


def lease_words(lease: Lease) -> dict[str, Any]:
    """A lease as JSON; what may not fit a JavaScript number is text."""
    return {
        "worker": lease.worker,
        "token": lease.token,
        "start": str(lease.start),
        "until": str(lease.until),
        "generation": lease.generation,
    }
