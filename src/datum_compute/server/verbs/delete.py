"""DELETE of an object and of a collection.

Finalizers turn a delete into a mark; the write that takes the last finalizer removes the object.
What happens to dependents is the garbage collector's work: Foreground and Orphan leave it a
finalizer that says what is still to be done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from datum_compute.admission.findings import invalid
from datum_compute.api.errors import BadRequest, Cause, Invalid, NotFound
from datum_compute.api.http import Response
from datum_compute.api.labels import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode, from_json
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import ResourceRegistry, is_namespace
from datum_compute.server.encoding.body import decoded_body, json_equal
from datum_compute.server.encoding.list_body import ENCODED_BYTES_MAX
from datum_compute.server.encoding.representation import representation_of
from datum_compute.server.encoding.request_options import choice, dry_run, flag, is_dry_run, number
from datum_compute.server.encoding.responses import conflict, json_answer, list_answer, shortened
from datum_compute.server.encoding.selectors import build_matcher
from datum_compute.server.flowcontrol.control import filter_in_turns, map_in_turns
from datum_compute.server.routing import ResourceRequest
from datum_compute.server.verbs import commit, definitions, namespaces
from datum_compute.server.verbs.admission_lookups import check_removal
from datum_compute.server.verbs.metadata import ordered, terminating_metadata
from datum_compute.server.verbs.update import has_finalizers, remove_object
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record

# The finalizer that each policy leaves, if any.
_FINALIZERS = {
    "Background": (),
    "Foreground": (FOREGROUND_FINALIZER,),
    "Orphan": (ORPHAN_FINALIZER,),
}
_POLICIES = tuple(_FINALIZERS)
_AT_ONCE = 100
_BATCH_BYTES_MAX = 8 * 1024 * 1024
_SUCCESS: JsonObject = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
}


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
    """Without a policy the finalizers that are there already decide."""

    uid: str
    version: str
    dry_run: bool
    policy: str


@dataclass(frozen=True, slots=True)
class _Deleted:
    """The object as it was last or, while finalizers hold it, as it is now."""

    body: bytes
    gone: bool


async def delete(
    ports: ServerContext, catalogue: ResourceRegistry, call: ResourceRequest
) -> Response:
    shown = representation_of(call, ports.clock)
    options = _delete_options(call)
    deleted = await _delete_one(ports, catalogue, call, call.key, options)
    if deleted.gone:
        return json_answer(_success(call, decode(deleted.body)))
    return json_answer(shown.single(deleted.body))


async def delete_collection(
    ports: ServerContext, catalogue: ResourceRegistry, call: ResourceRequest
) -> Response:
    """Delete everything that the selectors match; many deletes share one commit.

    The response lists the objects, or is a Status if they are too large together.
    """
    shown = representation_of(call, ports.clock)
    options = _delete_options(call)
    matches = build_matcher(call.served, call.query, namespace=call.route.namespace)
    found = ports.store.snapshot(call.plane, call.kind.storage, call.route.namespace or None)
    work = call.work
    records = await filter_in_turns(work, matches, found.records)
    bodies: list[bytes] = []
    room = ENCODED_BYTES_MAX
    for batch in _batches(records):
        results = await asyncio.gather(
            *(work.run_part(_delete_one(ports, catalogue, call, key, options)) for key in batch),
            return_exceptions=True,
        )
        for result in filter(None, map(_unless_failed, results)):
            room -= len(result.body)
            bodies.append(result.body if room >= 0 else b"")
    if room < 0:
        return json_answer({**_SUCCESS, "details": _details(call)})
    metadata = {"resourceVersion": str(ports.store.version(call.plane))}
    items = await map_in_turns(work, shown.item, bodies)
    return list_answer(call.request, shown.listed(metadata, items))


def _batches(records: Iterable[Record]) -> Iterator[list[ObjectKey]]:
    """Yield the keys of objects that are deleted together, limited in number and size."""
    batch: list[ObjectKey] = []
    size_bytes = 0
    for record in records:
        if batch and (len(batch) >= _AT_ONCE or size_bytes + len(record.body) > _BATCH_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(record.key)
        size_bytes += len(record.body)
    if batch:
        yield batch


def _unless_failed(result: _Deleted | BaseException) -> _Deleted | None:
    """Somebody else may have been quicker; any other failure is the answer to the request."""
    if isinstance(result, NotFound):
        return None
    if isinstance(result, BaseException):
        raise result
    return result


async def _delete_one(
    ports: ServerContext,
    catalogue: ResourceRegistry,
    call: ResourceRequest,
    key: ObjectKey,
    options: DeleteOptions,
) -> _Deleted:
    if is_namespace(call.kind):
        namespaces.check_may_go(call.kind, key.name)

    async def attempt() -> _Deleted:
        record = ports.store.get(call.plane, key)
        if record is None:
            raise ports.own.absence(call.kind, key)
        old = call.served.conversion.object_of(record)
        _check_preconditions(call, old, options)
        check_removal(ports, call, old)
        held = {**old, "metadata": _with_policy(old["metadata"], options.policy)}
        if has_finalizers(call, held):
            if "deletionTimestamp" not in old["metadata"]:
                held = _marked(ports, call, held)
            elif json_equal(held, old):
                return _Deleted(call.served.conversion.body_of(record), gone=False)
            body = await commit.put(ports, call, key, held, old=record, dry_run=options.dry_run)
            return _Deleted(body, gone=False)
        body = await remove_object(ports, catalogue, call, held, record, dry=options.dry_run)
        return _Deleted(body, gone=True)

    return await commit.retry_on_conflict(ports, call, key.name, attempt)


def _with_policy(metadata: JsonObject, policy: str) -> JsonObject:
    if not policy:
        return metadata
    own = (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)
    others = [f for f in metadata.get("finalizers", ()) if f not in own]
    finalizers = [*others, *_FINALIZERS[policy]]
    rest = {name: value for name, value in metadata.items() if name != "finalizers"}
    return ordered({**rest, "finalizers": finalizers} if finalizers else rest)


def _marked(ports: ServerContext, call: ResourceRequest, old: JsonObject) -> JsonObject:
    metadata = terminating_metadata(call.kind, old["metadata"], ports.clock())
    new = {**old, "metadata": metadata}
    if definitions.is_definition(call.kind):
        return definitions.terminating(new, ports.clock())
    return namespaces.terminating(new) if is_namespace(call.kind) else new


def _delete_options(call: ResourceRequest) -> DeleteOptions:
    """From the body and the query; the body is optional."""
    wire = _wire_options(call) if call.request.body else _WireOptions()
    if wire.kind != "DeleteOptions":
        raise BadRequest(f"the body must be DeleteOptions, not {shortened(wire.kind)}")
    number(call.query, "gracePeriodSeconds")
    if (wire.grace_period_seconds or 0) < 0:
        raise Invalid("gracePeriodSeconds: Invalid value: must be greater than or equal to 0")
    asked_dry = [is_dry_run(value) for value in wire.dry_run or ()]
    wanted = wire.preconditions or _Preconditions()
    return DeleteOptions(
        uid=wanted.uid or "",
        version=wanted.resource_version or "",
        dry_run=any(asked_dry) or dry_run(call.query),
        policy=_policy(call, wire),
    )


def _wire_options(call: ResourceRequest) -> _WireOptions:
    try:
        return from_json(decoded_body(call.request), _WireOptions)
    except DecodeError as error:
        raise BadRequest(f"the DeleteOptions cannot be read: {error}") from error


def _policy(call: ResourceRequest, wire: _WireOptions) -> str:
    """The policy that was asked for, also in its oldest form: whether to orphan."""
    policy = wire.propagation_policy or choice(call.query, "propagationPolicy", _POLICIES)
    orphans = wire.orphan_dependents
    if orphans is None and "orphanDependents" in call.query:
        orphans = flag(call.query, "orphanDependents")
    if policy and orphans is not None:
        why = "Invalid value: orphanDependents and propagationPolicy cannot be both set"
        cause = Cause("propagationPolicy", "FieldValueInvalid", why)
        raise invalid(call.kind, call.route.name, [cause])
    if policy and policy not in _POLICIES:
        listed = ", ".join(f'"{p}"' for p in _POLICIES)
        why = f'Unsupported value: "{shortened(policy)}": supported values: {listed}'
        cause = Cause("propagationPolicy", "FieldValueNotSupported", why)
        raise invalid(call.kind, call.route.name, [cause])
    return policy or {None: "", True: "Orphan", False: "Background"}[orphans]


def _check_preconditions(call: ResourceRequest, old: JsonObject, options: DeleteOptions) -> None:
    metadata = old["metadata"]
    name = metadata["name"]
    if options.uid and options.uid != metadata["uid"]:
        raise conflict(call.kind, name, _mismatch("UID", options.uid, metadata["uid"]))
    present = metadata["resourceVersion"]
    if options.version and options.version != present:
        why = _mismatch("ResourceVersion", options.version, present)
        raise conflict(call.kind, name, why)


def _mismatch(what: str, wanted: str, present: str) -> str:
    return (
        f"Precondition failed: {what} in precondition: {shortened(wanted)}, "
        f"{what} in object meta: {present}"
    )


def _success(call: ResourceRequest, last: JsonObject) -> JsonObject:
    metadata = last["metadata"]
    details = _details(call, name=metadata["name"], uid=metadata["uid"])
    return {**_SUCCESS, "details": details}


def _details(call: ResourceRequest, name: str = "", uid: str = "") -> JsonObject:
    details = {"name": name, "group": call.kind.group, "kind": call.kind.plural, "uid": uid}
    return {field: value for field, value in details.items() if value}
