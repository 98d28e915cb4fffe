"""What the endpoints share that lend: reading what a client says, and refusing with values."""

from __future__ import annotations

from typing import Any

from rest_framework.response import Response

from ..core.errors import ClockBeforeEpoch, NamespaceMismatch
from .base import IdgenView, response_of
from .failures import Failure
from .lending_input import Asking

__all__ = ["LendingRefused", "LendingView"]


class LendingRefused(Exception):
    """409: nothing was lent, and asking again won't help; ``values`` say what doesn't fit."""

    status = 409

    def __init__(self, code: str, detail: str, **values: object) -> None:
        self.content = {"detail": detail, "code": code, **values}
        super().__init__(detail)


class LendingView(IdgenView):
    """A grant a request: one that is sent twice is granted twice, and never the same."""

    def read(self, kind: type[Asking]) -> dict[str, Any]:
        """What the body says. Raises DRF's ``ValidationError``, by field."""
        given = kind(data=self.request.data)
        given.is_valid(raise_exception=True)
        return dict(given.validated_data)

    def check_installation(self, asked: dict[str, Any], ours: str) -> None:
        """Refuse a client that was lent by another database before: ids would repeat."""
        theirs = asked.get("installation", ours)
        if theirs != ours:
            raise LendingRefused(
                "installation_mismatch",
                f"This service lends for installation {ours}, but the client was lent by "
                f"{theirs} before: another database, which gives out the same ids.",
                installation=ours,
                expected=theirs,
            )

    def answer(self, asked: dict[str, Any], **values: object) -> Response:
        """200, with the nonce that says which request this is the answer of."""
        if "nonce" in asked:
            values["nonce"] = asked["nonce"]
        return Response(values)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, LendingRefused):
            return self._marked(Response(exc.content, status=exc.status))
        if isinstance(exc, NamespaceMismatch):
            return self._marked(Response(mismatch(exc), status=409))
        if isinstance(exc, ClockBeforeEpoch):
            return self._marked(response_of(Failure(503, "clock_before_epoch", str(exc), None, 5)))
        return super().handle_exception(exc)

    def _marked(self, response: Response) -> Response:
        response.exception = True
        return response


def mismatch(error: NamespaceMismatch) -> dict[str, object]:
    """A setting in which a client differs from us, with both values."""
    return {
        "detail": str(error),
        "code": "namespace_mismatch",
        "namespace": error.namespace,
        "setting": error.setting,
        "stored": error.stored,
        "configured": error.configured,
    }
