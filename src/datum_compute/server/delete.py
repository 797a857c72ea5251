"""DELETE of an object and of a collection.

Finalizers turn a delete into a mark; the write that takes the last finalizer removes the object.
Only background deletion is supported: dependents are left to the garbage collector. The others
are refused, because quietly doing something else would lose or keep what the caller did not want.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from datum_compute.api.codec import DecodeError, JsonObject, decode, typed
from datum_compute.api.errors import BadRequest, Cause, Invalid, NotFound
from datum_compute.api.exchange import Response
from datum_compute.server import commit, namespaces, problems
from datum_compute.server.answer import json_answer
from datum_compute.server.call import Call
from datum_compute.server.catalogue import Catalogue, is_namespace
from datum_compute.server.document import decoded_body
from datum_compute.server.metadata import terminating_metadata
from datum_compute.server.options import choice, dry_run, flag, is_dry_run, number
from datum_compute.server.ports import Ports
from datum_compute.server.representation import representation_of
from datum_compute.server.selectors import selected
from datum_compute.server.update import holds_on
from datum_compute.store.journal import ObjectKey

BACKGROUND = "Background"
_POLICIES = (BACKGROUND, "Foreground", "Orphan")
_AT_ONCE = 100


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _WireOptions(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = "DeleteOptions"
    dry_run: list[str] | None = None
    grace_period_seconds: int | None = None
    orphan_dependents: bool | None = None
    preconditions: _Preconditions | None = None
    propagation_policy: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    uid: str
    version: str
    dry_run: bool


@dataclass(frozen=True, slots=True)
class _Deleted:
    """The object as it was last or, while finalizers hold it, as it is now."""

    body: bytes
    gone: bool


async def delete(ports: Ports, catalogue: Catalogue, call: Call) -> Response:
    shown = representation_of(call, ports.clock)
    options = _delete_options(call)
    deleted = await _delete_one(ports, catalogue, call, call.key, options)
    if deleted.gone:
        return json_answer(_success(call, decode(deleted.body)))
    return json_answer(shown.single(deleted.body))


async def delete_collection(ports: Ports, catalogue: Catalogue, call: Call) -> Response:
    """Everything the selectors match; many deletes share one commit."""
    shown = representation_of(call, ports.clock)
    options = _delete_options(call)
    matches = selected(call.served, call.query, namespace=call.route.namespace, name="")
    found = ports.store.snapshot(call.plane, call.kind.storage, call.route.namespace or None)
    keys = [record.key for record in found.records if matches(record)]
    bodies: list[bytes] = []
    for start in range(0, len(keys), _AT_ONCE):
        results = await asyncio.gather(
            *(
                _delete_one(ports, catalogue, call, key, options)
                for key in keys[start : start + _AT_ONCE]
            ),
            return_exceptions=True,
        )
        bodies += [result.body for result in map(_unless_failed, results) if result]
    metadata = {"resourceVersion": str(ports.store.version(call.plane))}
    return json_answer(shown.listed(metadata, bodies))


def _unless_failed(result: _Deleted | BaseException) -> _Deleted | None:
    """Somebody else may have been quicker; any other failure is the answer to the request."""
    if isinstance(result, NotFound):
        return None
    if isinstance(result, BaseException):
        raise result
    return result


async def _delete_one(
    ports: Ports, catalogue: Catalogue, call: Call, key: ObjectKey, options: DeleteOptions
) -> _Deleted:
    async def attempt() -> _Deleted:
        record = ports.store.get(call.plane, key)
        if record is None:
            raise problems.not_found(call.kind, key.name)
        old = call.served.conversion.object_of(record)
        _check_preconditions(call, old, options)
        if holds_on(call, old):
            if "deletionTimestamp" in old["metadata"]:
                return _Deleted(call.served.conversion.body_of(record), gone=False)
            marked = _marked(ports, call, old)
            body = await commit.put(ports, call, key, marked, old=record, dry_run=options.dry_run)
            return _Deleted(body, gone=False)
        if is_namespace(call.kind):
            namespaces.check_empty(ports, catalogue, call.plane, key.name)
        body = await commit.remove(ports, call, old, old=record, dry_run=options.dry_run)
        return _Deleted(body, gone=True)

    return await commit.until_settled(ports, call, key.name, attempt)


def _marked(ports: Ports, call: Call, old: JsonObject) -> JsonObject:
    metadata = terminating_metadata(call.kind, old["metadata"], ports.clock())
    new = {**old, "metadata": metadata}
    return namespaces.terminating(new) if is_namespace(call.kind) else new


def _delete_options(call: Call) -> DeleteOptions:
    """From the body and the query; the body is optional."""
    wire = _wire_options(call) if call.request.body else _WireOptions()
    if wire.kind != "DeleteOptions":
        raise BadRequest(f"the body must be DeleteOptions, not {problems.shortened(wire.kind)}")
    policy = wire.propagation_policy or choice(call.query, "propagationPolicy", _POLICIES)
    _check_policy(
        call, policy, bool(wire.orphan_dependents) or flag(call.query, "orphanDependents")
    )
    number(call.query, "gracePeriodSeconds")
    if (wire.grace_period_seconds or 0) < 0:
        raise Invalid("gracePeriodSeconds: Invalid value: must be greater than or equal to 0")
    asked_dry = [is_dry_run(value) for value in wire.dry_run or ()]
    wanted = wire.preconditions or _Preconditions()
    return DeleteOptions(
        uid=wanted.uid or "",
        version=wanted.resource_version or "",
        dry_run=any(asked_dry) or dry_run(call.query),
    )


def _wire_options(call: Call) -> _WireOptions:
    try:
        return typed(decoded_body(call.request), _WireOptions)
    except DecodeError as error:
        raise BadRequest(f"the DeleteOptions cannot be read: {error}") from error


def _check_policy(call: Call, policy: str, orphans: bool) -> None:
    if policy in ("", BACKGROUND) and not orphans:
        return
    message = (
        f'Unsupported value: "{problems.shortened(policy or "Orphan")}": supported values: '
        f'"{BACKGROUND}"'
    )
    cause = Cause("propagationPolicy", "FieldValueNotSupported", message)
    raise problems.invalid(call.kind, call.route.name, [cause])


def _check_preconditions(call: Call, old: JsonObject, options: DeleteOptions) -> None:
    metadata = old["metadata"]
    name = metadata["name"]
    if options.uid and options.uid != metadata["uid"]:
        raise problems.conflict(call.kind, name, _mismatch("UID", options.uid, metadata["uid"]))
    present = metadata["resourceVersion"]
    if options.version and options.version != present:
        why = _mismatch("ResourceVersion", options.version, present)
        raise problems.conflict(call.kind, name, why)


def _mismatch(what: str, wanted: str, present: str) -> str:
    return (
        f"Precondition failed: {what} in precondition: {problems.shortened(wanted)}, "
        f"{what} in object meta: {present}"
    )


def _success(call: Call, last: JsonObject) -> JsonObject:
    details: dict[str, Any] = {
        "name": last["metadata"]["name"],
        "group": call.kind.group,
        "kind": call.kind.plural,
        "uid": last["metadata"]["uid"],
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: value for name, value in details.items() if value},
    }
