"""Accept and Content-Type headers. Answers are JSON; a missing Content-Type means JSON too, and no
Content-Encoding is supported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from datum_compute.api.errors import NotAcceptable, UnsupportedMediaType
from datum_compute.api.http import JSON

# Parsed headers are cached, so their size is limited. The longest header of kubectl has about 200
# characters.
ACCEPT_LENGTH_MAX, ACCEPTED_TYPES_MAX = 4096, 64
_PLAIN = ("", "identity")
_ANY = ("*/*", "application/*", JSON)


class MediaType(msgspec.Struct, frozen=True):
    """A type and the parameters that say in which form an object is wanted."""

    name: str
    form: str = ""  # as=
    group: str = ""  # g=
    version: str = ""  # v=

    @property
    def is_plain_json(self) -> bool:
        return self.name in _ANY and not self.form


def accepted(header: str) -> tuple[MediaType, ...]:
    """The types of an Accept header, the most wanted first; no header means any. 406 for a header
    that is too long."""
    if len(header) > ACCEPT_LENGTH_MAX or header.count(",") >= ACCEPTED_TYPES_MAX:
        raise NotAcceptable(
            f"the header Accept must have at most {ACCEPT_LENGTH_MAX} characters and "
            f"{ACCEPTED_TYPES_MAX} media types"
        )
    return _parse_accept(header)


@lru_cache(maxsize=256)  # clients repeat the same few headers
def _parse_accept(header: str) -> tuple[MediaType, ...]:
    weighted = [_parsed(part) for part in header.split(",") if part.strip()]
    weighted.sort(key=lambda found: -found[0])  # stable: equal weights keep their order
    return tuple(media for weight, media in weighted if weight > 0) or (MediaType("*/*"),)


def preferred(header: str, forms: Sequence[MediaType]) -> MediaType:
    """The first wanted type that is plain JSON or one of ``forms``; 406 when there is none."""
    for media in accepted(header):
        if media.is_plain_json:
            return MediaType(JSON)
        if media in forms:
            return media
    raise NotAcceptable(
        f"only the following media types are accepted: {', '.join(_shown(f) for f in forms)}"
        if forms
        else f"only the following media types are accepted: {JSON}"
    )


def content_type(headers: Mapping[str, str]) -> str:
    """The type of the body in lower case, without parameters; 415 for a body that is encoded: what
    is not unpacked must not be read as if it were plain."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN:
        raise UnsupportedMediaType(
            f"the body of the request has the content encoding {encoding[:64]!a}, which is not "
            "supported; send it as it is, without Content-Encoding"
        )
    return headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def unsupported(found: str, supported: Sequence[str]) -> UnsupportedMediaType:
    listed = ", ".join(supported)
    return UnsupportedMediaType(
        f"the body of the request was in an unknown format ({found}) - accepted media types "
        f"include: {listed}"
    )


def _parsed(part: str) -> tuple[float, MediaType]:
    name, *parameters = part.split(";")
    pairs = dict(_pair(p) for p in parameters)
    media = MediaType(
        name.strip().lower(), pairs.get("as", ""), pairs.get("g", ""), pairs.get("v", "")
    )
    return _weight(pairs.get("q", "1")), media


def _pair(parameter: str) -> tuple[str, str]:
    name, _, value = parameter.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0  # also catches nan


def _shown(media: MediaType) -> str:
    return f"{media.name};as={media.form};v={media.version};g={media.group}, {JSON}"
