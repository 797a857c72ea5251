"""Continue tokens: the version a paged list is pinned to and the last object it showed."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import msgspec

from datum_compute.api.errors import BadRequest
from datum_compute.api.meta.codec import DecodeError, decode_as, encode


class _Wire(msgspec.Struct, frozen=True):
    v: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Continuation:
    version: int
    namespace: str
    name: str


def continue_token(at: Continuation) -> str:
    body = encode(_Wire(at.version, at.namespace, at.name))
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def read_continue_token(token: str) -> Continuation:
    try:
        body = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        wire = decode_as(body, _Wire)
    except (binascii.Error, UnicodeError, ValueError, DecodeError) as error:
        raise BadRequest("continue key is not valid: start the list again without it") from error
    if wire.v < 0:
        raise BadRequest("continue key is not valid: start the list again without it")
    return Continuation(wire.v, wire.namespace, wire.name)
