"""Initial status: which status of a new object is not written, and for how long.

Rules:
- Every new object passes through the same first steps: gates pending, network and machine in
  progress. For ``INITIAL_STATUS_S`` after its creation these steps are not written.
- A problem is written immediately. So is every later change of a status that was written before.
- After ``INITIAL_STATUS_S`` every step is written.

Most objects are ready before that, and a status write on a cell causes writes on the hub and in the
project as well.

``should_defer`` is the rule for single objects. Two statuses wait for an event instead of a time:
the first status of a deployment is written together with its first instances
(``planning/rollout/status.py``), and that of a binding with the first report of a cell
(``planning/karmada/bindings.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api.conditions import Condition
from datum_compute.api.meta.objects import ApiObject
from datum_compute.api.meta.timestamps import parse_timestamp

INITIAL_STATUS_S = 5.0


def should_defer(obj: ApiObject, due: Sequence[Condition], now: str) -> bool:
    """Return True if the status of a new object need not be written yet.

    ``due`` are the conditions that do not wait: those that were reported before, and problems.
    An object whose creation time is far in the future does not count as new, because the clocks
    disagree.
    """
    return not due and abs(age_s(obj, now)) < INITIAL_STATUS_S


def age_s(obj: ApiObject, now: str) -> float:
    created = obj.metadata.creation_timestamp
    return parse_timestamp(now) - parse_timestamp(created) if created else 0.0
