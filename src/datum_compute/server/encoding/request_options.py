"""Options of a request: Accept and Content-Type, query parameters, and fieldValidation.

Responses are JSON. A missing Content-Type means JSON. No Content-Encoding is supported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from datum_compute.api.errors import (
    BadRequest,
    Cause,
    Invalid,
    NotAcceptable,
    UnsupportedMediaType,
    shorten,
)
from datum_compute.api.http import JSON
from datum_compute.api.meta.objects import KindInfo

# Parsed headers are cached, so their size is limited. The longest header of kubectl has about 200
# characters.
ACCEPT_LENGTH_MAX, ACCEPTED_TYPES_MAX = 4096, 64
_PLAIN = ("", "identity")
_ANY = ("*/*", "application/*", JSON)


class MediaType(msgspec.Struct, frozen=True):
    """A media type and its parameters, which select the form of an object (``as=Table``)."""

    name: str
    form: str = ""  # as=
    group: str = ""  # g=
    version: str = ""  # v=

    @property
    def is_plain_json(self) -> bool:
        return self.name in _ANY and not self.form


def parse_accept(header: str) -> tuple[MediaType, ...]:
    """Return the types of an Accept header by preference. An empty header accepts any type.

    Raise NotAcceptable if the header is too long.
    """
    if len(header) > ACCEPT_LENGTH_MAX or header.count(",") >= ACCEPTED_TYPES_MAX:
        raise NotAcceptable(
            f"the header Accept must have at most {ACCEPT_LENGTH_MAX} characters and "
            f"{ACCEPTED_TYPES_MAX} media types"
        )
    return _parse_accept_cached(header)


@lru_cache(maxsize=256)  # clients repeat the same few headers
def _parse_accept_cached(header: str) -> tuple[MediaType, ...]:
    weighted = [_parse_media_range(part) for part in header.split(",") if part.strip()]
    weighted.sort(key=lambda found: -found[0])  # stable: equal weights keep their order
    return tuple(media for weight, media in weighted if weight > 0) or (MediaType("*/*"),)


def choose_media_type(header: str, forms: Sequence[MediaType]) -> MediaType:
    """Return the first type that is plain JSON or one of ``forms``, or raise NotAcceptable."""
    for media in parse_accept(header):
        if media.is_plain_json:
            return MediaType(JSON)
        if media in forms:
            return media
    listed = map(_format_media_type, forms)
    raise NotAcceptable(
        f"only the following media types are accepted: {', '.join(listed) if forms else JSON}"
    )


def content_type(headers: Mapping[str, str]) -> str:
    """Return the type of the body in lower case, without parameters.

    Raise UnsupportedMediaType for a compressed body, which would be read as if it were plain.
    """
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN:
        raise UnsupportedMediaType(
            f"the body of the request has the content encoding {encoding[:64]!a}, which is not "
            "supported; send it as it is, without Content-Encoding"
        )
    return headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def unsupported_media_type(found: str, supported: Sequence[str]) -> UnsupportedMediaType:
    listed = ", ".join(supported)
    return UnsupportedMediaType(
        f"the body of the request was in an unknown format ({found}) - accepted media types "
        f"include: {listed}"
    )


def _parse_media_range(part: str) -> tuple[float, MediaType]:
    name, *parameters = part.split(";")
    pairs = dict(_parse_parameter(p) for p in parameters)
    media = MediaType(
        name.strip().lower(), pairs.get("as", ""), pairs.get("g", ""), pairs.get("v", "")
    )
    return _parse_weight(pairs.get("q", "1")), media


def _parse_parameter(parameter: str) -> tuple[str, str]:
    name, _, value = parameter.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _parse_weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0  # also catches nan


def _format_media_type(media: MediaType) -> str:
    return f"{media.name};as={media.form};v={media.version};g={media.group}, {JSON}"


# --- Query parameters: flags, numbers and choices
# A value that cannot be parsed is a BadRequest, and an unsupported choice is Invalid, as in
# Kubernetes.


_NUMBER = re.compile(r"(-?)([0-9]+)")
_DIGITS_MAX = 18


def parse_flag(query: Mapping[str, str], name: str) -> bool:
    """Return True if the parameter is present and neither 0 nor false."""
    return name in query and query[name].lower() not in ("0", "false")


def parse_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise _invalid_number(name, text, "must be a whole number")
    if found[1]:
        raise _invalid_number(name, text, "must be 0 or greater")
    if len(text) > _DIGITS_MAX:
        raise _invalid_number(name, text, f"must be less than {10**_DIGITS_MAX}")
    return int(text)


def _invalid_number(name: str, text: str, reason: str) -> BadRequest:
    return BadRequest(f'{name}: Invalid value: "{shorten(text)}": {reason}')


def parse_dry_run(query: Mapping[str, str]) -> bool:
    return "dryRun" in query and is_dry_run(query["dryRun"])


def is_dry_run(value: str) -> bool:
    if value not in ("", "All"):
        raise _unsupported_parameter("dryRun", value, ("All",))
    return value == "All"


def parse_choice(query: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return one of ``allowed``, or an empty string if the parameter is missing."""
    value = query.get(name, "")
    if value and value not in allowed:
        raise _unsupported_parameter(name, value, allowed)
    return value


def _unsupported_parameter(name: str, value: str, allowed: tuple[str, ...]) -> Invalid:
    cause = Cause.unsupported(name, shorten(value), allowed)
    return Invalid(f"{name}: {cause.message}", causes=[cause])


# --- The fieldValidation parameter: how the server treats unknown and duplicate fields
# Unknown fields are dropped. Strict rejects the request; Warn (the default) adds a Warning header.
# Duplicates need a second parse of the body, so they are checked only if the request sets Strict or
# Warn.


STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
FIELDS_MAX = 100  # unknown or duplicate fields that a message names
_WARNINGS_BYTES_MAX = 4096
_WARNING_CHARS_MAX = 1024


class FieldValidation(msgspec.Struct, frozen=True):
    mode: str
    duplicates: tuple[str, ...]

    def enforce(
        self, kind: KindInfo[Any], unknown: Sequence[str], warnings: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return the Warning header, if there are warnings. Raises BadRequest in Strict mode."""
        if self.mode == IGNORE:
            return {"warning": warning_header(warnings)} if warnings else {}
        found = [f'unknown field "{shorten(field)}"' for field in unknown[:FIELDS_MAX]]
        found += [f'duplicate field "{shorten(field)}"' for field in self.duplicates]
        if len(unknown) > FIELDS_MAX:
            found.append(f"{len(unknown) - FIELDS_MAX} more unknown fields")
        if found and self.mode == STRICT:
            raise BadRequest(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {', '.join(found)}"
            )
        found += warnings
        return {"warning": warning_header(found)} if found else {}


_DEFAULT_VALIDATION = FieldValidation(WARN, ())


def parse_field_validation(query: Mapping[str, str], body: bytes) -> FieldValidation:
    if "fieldValidation" not in query:
        return _DEFAULT_VALIDATION
    mode = parse_choice(query, "fieldValidation", (STRICT, WARN, IGNORE))
    duplicates = tuple(duplicate_fields(body)) if mode in (STRICT, WARN) else ()
    return FieldValidation(mode or WARN, duplicates)


class _ObjectWithDuplicates(dict[str, Any]):
    """A JSON object with duplicate keys."""

    duplicate_names: tuple[str, ...] = ()


# A field inside an object: the path of the object, and the name of the field.
_Path = tuple["_Path", str] | None


def duplicate_fields(body: bytes) -> Iterator[str]:
    """Yield the paths of duplicate keys, at most ``FIELDS_MAX``. Other formats than JSON have
    none: the YAML parser rejects duplicate keys."""
    found: list[_ObjectWithDuplicates] = []

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) == len(pairs) or len(found) >= FIELDS_MAX:
            return plain
        doubled = _ObjectWithDuplicates(plain)
        doubled.duplicate_names = _duplicate_names(pairs)
        found.append(doubled)
        return doubled

    try:
        value = json.loads(body, object_pairs_hook=read_object)
    except (ValueError, RecursionError):
        return
    if found:
        yield from islice(_duplicate_paths(value), FIELDS_MAX)


def _duplicate_names(pairs: list[tuple[str, Any]]) -> tuple[str, ...]:
    seen: set[str] = set()
    doubled: dict[str, None] = {}
    for name, _ in pairs:
        if name in seen:
            doubled[name] = None
        seen.add(name)
    return tuple(doubled)


def _duplicate_paths(value: Any) -> Iterator[str]:
    """Yield the paths of duplicate keys. Only reported paths are joined: otherwise a long key would
    be copied for each field below it."""
    stack: list[tuple[Any, _Path]] = [(value, None)]
    while stack:
        inside, path = stack.pop()
        if isinstance(inside, _ObjectWithDuplicates):
            yield from (_format_path((path, name)) for name in inside.duplicate_names)
        if isinstance(inside, dict):
            steps: list[tuple[str, Any]] = list(inside.items())
        else:
            steps = [(f"[{index}]", item) for index, item in enumerate(inside)]
        nested = [(item, (path, step)) for step, item in steps if isinstance(item, dict | list)]
        stack += reversed(nested)


def _format_path(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(shorten(step))
    return "".join(s if s.startswith("[") else f".{s}" for s in reversed(steps)).removeprefix(".")


def warning_header(texts: Sequence[str]) -> str:
    """Return one Warning header for all texts. Characters other than printable ASCII are replaced,
    because field names come from the client."""
    result = ""
    for text in texts:
        clean = "".join(c if " " <= c <= "~" else "?" for c in shorten(text, _WARNING_CHARS_MAX))
        escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
        more = f'{", " if result else ""}299 - "{escaped}"'
        if len(result) + len(more) > _WARNINGS_BYTES_MAX:
            break
        result += more
    return result
