"""Dump: the content of a store as lines of JSON. Backups consist of dumps.

The first line contains the format and the list of planes. Each following line is one object, with
its body byte for byte. The last line contains the number of objects and a checksum of all lines
before it, so that truncated and damaged dumps are refused.

Planes and objects are sorted by name, so that two dumps of the same state are equal. A dump of a
newer format is refused. To change the format, increase FORMAT and continue to read older ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from datum_compute.store.journal import LoadedPlane, ObjectKey

FORMAT = 1
KIND = "datum-compute-dump"


class DumpError(Exception):
    """The dump is invalid, incomplete, or of a newer release. The message contains the cause."""


class _PlaneLine(msgspec.Struct, frozen=True):
    name: str
    version: int
    deleted: bool
    objects: int


class _Head(msgspec.Struct, frozen=True):
    kind: str
    format: int
    planes: list[_PlaneLine]


class _ObjectLine(msgspec.Struct, frozen=True, array_like=True):
    plane: str
    resource: str
    namespace: str
    name: str
    version: int
    body: msgspec.Raw


class _Tail(msgspec.Struct, frozen=True):
    objects: int
    sha256: str


Planes = Mapping[str, LoadedPlane]


def encode_dump(planes: Planes) -> bytes:
    lines = [msgspec.json.encode(line) for line in _lines(planes)]
    body = b"\n".join(lines) + b"\n"
    tail = _Tail(len(lines) - 1, hashlib.sha256(body).hexdigest())
    return body + msgspec.json.encode(tail) + b"\n"


def _lines(planes: Planes) -> Iterator[_Head | _ObjectLine]:
    ordered = sorted(planes.items())
    plane_lines = [_PlaneLine(name, p.version, p.deleted, len(p.objects)) for name, p in ordered]
    yield _Head(KIND, FORMAT, plane_lines)
    for name, plane in ordered:
        for key, (version, body) in sorted(plane.objects.items()):
            yield _ObjectLine(name, *key, version, msgspec.Raw(body))


def decode_dump(dump: bytes) -> dict[str, LoadedPlane]:
    """Return the planes of a dump. Raise DumpError if the dump is truncated or damaged."""
    try:
        lines = dump.split(b"\n")
        if len(lines) < 3 or lines[-1]:
            raise DumpError("the dump is truncated")
        head = _decode_head(lines[0])
        _check_tail(dump, lines)
        return _build_planes(
            head, (msgspec.json.decode(line, type=_ObjectLine) for line in lines[1:-2])
        )
    except msgspec.DecodeError as error:
        raise DumpError(f"the dump is damaged: {error}") from error


def _decode_head(line: bytes) -> _Head:
    try:
        head = msgspec.json.decode(line, type=_Head)
    except msgspec.DecodeError as error:
        raise DumpError("the file is not a dump of this platform") from error
    if head.kind != KIND:
        raise DumpError("the file is not a dump of this platform")
    if not 1 <= head.format <= FORMAT:
        raise DumpError(
            f"the dump was written by a newer release (format {head.format}, this release supports "
            f"{FORMAT}); upgrade datum-compute"
        )
    return head


def _check_tail(dump: bytes, lines: list[bytes]) -> None:
    try:
        tail = msgspec.json.decode(lines[-2], type=_Tail)
    except msgspec.DecodeError as error:
        raise DumpError("the dump is truncated") from error
    body = memoryview(dump)[: len(dump) - len(lines[-2]) - 1]
    if tail.objects != len(lines) - 3 or tail.sha256 != hashlib.sha256(body).hexdigest():
        raise DumpError("the dump is damaged: the checksum does not match")


def _build_planes(head: _Head, lines: Iterable[_ObjectLine]) -> dict[str, LoadedPlane]:
    planes = {p.name: LoadedPlane(p.version, {}, deleted=p.deleted) for p in head.planes}
    for line in lines:
        if line.plane not in planes:
            raise DumpError(f"the dump is damaged: {line.plane!r} is not in the list of planes")
        key = ObjectKey(line.resource, line.namespace, line.name)
        planes[line.plane].objects[key] = (line.version, bytes(line.body))
    for plane_line in head.planes:
        if len(planes[plane_line.name].objects) != plane_line.objects:
            raise DumpError(f"the dump is damaged: objects of {plane_line.name!r} are missing")
    return planes
