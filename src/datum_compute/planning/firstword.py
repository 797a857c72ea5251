"""The first word about something new: said when something has come of it, not at each step there.

What has just been made is on its way most often, and there in a moment. So for its first seconds
nothing is said of steps that everything new goes through; whatever is in its way is said at once.
"""

from __future__ import annotations

from datum_compute.api.meta import ApiObject
from datum_compute.api.timestamps import parse_timestamp

# How long something new is waited for before somebody says that it is on its way.
FIRST_WORD_S = 5.0


def age_s(obj: ApiObject, now: str) -> float:
    made = obj.metadata.creation_timestamp
    return parse_timestamp(now) - parse_timestamp(made) if made else 0.0


def is_new(obj: ApiObject, now: str) -> bool:
    return is_early(age_s(obj, now))


def is_early(age_s: float) -> bool:
    """What was made long from now was made by another clock: nobody is kept waiting for that."""
    return abs(age_s) < FIRST_WORD_S
