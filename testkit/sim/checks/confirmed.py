"""What a server confirms: I10, it is durable; I11, it replaced what it said it would."""

from __future__ import annotations

from collections.abc import Iterator

from datum_compute.api.codec import ApiStruct, DecodeError, decode_as
from datum_compute.api.exchange import Request, Response
from datum_compute.api.plane import split_path
from testkit.sim.checks.truth import Truth


def broken_promises(truth: Truth, request: Request, response: Response) -> Iterator[str]:
    if request.method == "GET" or response.status >= 300:
        return
    answered = _version_in(response.body)
    if not answered:
        return
    plane = split_path(request.path)[0]
    if int(answered) > truth.versions.get(plane, 0):
        yield f"I10: {request.path} confirmed at {answered}, not yet durable"
    if request.method in ("PATCH", "PUT"):
        asked = _version_in(request.body)
        replaced = truth.replaced.get((plane, int(answered)))
        if asked and asked != answered and replaced not in (None, asked):
            yield f"I11: {request.path} at {answered} meant {asked} and replaced {replaced}"


class _Metadata(ApiStruct, frozen=True):
    resource_version: str = ""


class _Versioned(ApiStruct, frozen=True):
    """The one thing that is looked at in every answer; the rest is not even made into objects."""

    metadata: _Metadata = _Metadata()


def _version_in(body: bytes) -> str:
    """Of an object; nothing in what is none."""
    try:
        return decode_as(body, _Versioned).metadata.resource_version
    except DecodeError:
        return ""
