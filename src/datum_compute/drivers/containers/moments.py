"""What has happened to a machine, told in order; the last few of it."""

from __future__ import annotations

from datum_compute.api.codec import ApiStruct
from datum_compute.api.timestamps import timestamp

MOMENTS_MAX = 20
TEXT_MAX = 500


class Moment(ApiStruct, frozen=True, kw_only=True):
    at: str
    text: str


def note(moments: list[Moment], now_s: float, text: str) -> None:
    """The same again right after itself says nothing new."""
    text = text[:TEXT_MAX]
    if moments and moments[-1].text == text:
        return
    moments.append(Moment(at=timestamp(now_s), text=text))
    del moments[:-MOMENTS_MAX]
