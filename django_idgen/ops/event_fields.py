"""What an event says, as flat fields of a log record: for logs that machines read.

===============================  ==========================================================
``idgen_event``                  the name of the signal
``idgen_tag``                    the tag
``idgen_namespace``              the namespace of the lease
``idgen_worker``                 its worker id
``idgen_lease_start``            the first tick of its window
``idgen_lease_until``            the end of its window, a tick that is not of it
``idgen_lease_generation``       which life of the registry granted it
``idgen_segment_start``          the first id of the segment
``idgen_segment_stop``           its end, an id that is not of it
``idgen_segment_step``           the row's step when it was fetched
``idgen_error``                  the class of the exception
``idgen_error_message``          its words, on one line
``idgen_left_out``               warnings alike that were not written since the last one
``idgen_<name>``                 any other value of the signal: ``idgen_seconds``,
                                 ``idgen_ids``, ``idgen_offset_us``, ``idgen_alias`` ...
===============================  ==========================================================

A field is there if the event has such a value. All are strings, numbers or booleans that
JSON can hold, and none has the name of an attribute of every log record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..core.lease import Lease
from ..core.segment import Segment

__all__ = ["PREFIX", "Field", "fields_of"]

Field = str | int | float | bool
PREFIX = "idgen_"


def fields_of(name: str, values: Mapping[str, object]) -> dict[str, Field]:
    """The fields of the event ``name`` with the values that its signal was sent with."""
    fields: dict[str, Field] = {"event": name}
    for key, value in values.items():
        fields |= _flat(key, value)
    return {PREFIX + key: value for key, value in fields.items()}


def _flat(key: str, value: object) -> dict[str, Field]:
    if isinstance(value, Lease):
        # Without the token, which lets one renew.
        return {
            "namespace": value.namespace,
            "worker": value.worker,
            "lease_start": value.start,
            "lease_until": value.until,
            "lease_generation": value.generation,
        }
    if isinstance(value, Segment):
        return {
            "tag": value.tag,
            "segment_start": value.start,
            "segment_stop": value.stop,
            "segment_step": value.step,
        }
    if isinstance(value, BaseException):
        return {key: type(value).__name__, f"{key}_message": " ".join(str(value).split())}
    return {} if value is None else {key: _plain(value)}


def _plain(value: object) -> Field:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value if isinstance(value, (str, int, float)) else " ".join(str(value).split())
