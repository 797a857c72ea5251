"""Ages as people read them."""

from __future__ import annotations

from datum_compute.api.meta.objects import ApiObject
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.cli.output import render_age


def age_of(obj: ApiObject, now: float) -> str:
    return age_since(obj.metadata.creation_timestamp, now)


def age_since(moment: str | None, now: float) -> str:
    """How long ago; a dash where nobody knows (or where a default of 1970 stands)."""
    if not moment or moment.startswith("1970-"):
        return "-"
    return render_age(now - parse_timestamp(moment))
