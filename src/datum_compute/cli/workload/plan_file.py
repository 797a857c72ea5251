"""Plans in files: ``--plan-out`` writes what was shown, ``--plan`` carries out exactly that.

A plan is bound to the workload as it was read: if what people write of it (labels, annotations,
spec) has changed since, or it is another object of the same name, nothing at all is written. The
file holds values of environment variables in clear and is therefore only for its owner to read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject, sorted_bytes
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.connect.session import Session
from datum_compute.cli.environment import read_text_file
from datum_compute.cli.errors import ConflictError, UsageError
from datum_compute.cli.workload.edits import Edit, Target
from datum_compute.cli.workload.plan import Plan

# A plan of many workloads, each with its old and its new spec.
PLAN_BYTES_MAX = 64 * 1024 * 1024
SCHEMA = "compute.datumapis.com/cli-plan/v1"


def write_plan_file(session: Session, path: str, plans: Sequence[Plan]) -> None:
    document = {
        "schema": SCHEMA,
        "place": session.target_name,
        "namespace": session.namespace,
        "plans": [_entry(plan) for plan in plans],
    }
    file = session.environment.cwd / path
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(document, stream, indent=2)
            stream.write("\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    session.print_note(f"Carry it out: {session.command('deploy', f'--plan={path}')}")


def _entry(plan: Plan) -> JsonObject:
    return {
        "workload": plan.name,
        "action": plan.action,
        "changes": list(plan.lines),
        "observed": fingerprint(plan.observed),
        "desired": {
            key: plan.desired["metadata"].get(key) or {} for key in ("labels", "annotations")
        }
        | {"spec": plan.desired["spec"]},
    }


def fingerprint(observed: JsonObject | None) -> str:
    """Of the object and of all that people write of it; empty where there is none."""
    if observed is None:
        return ""
    metadata = observed["metadata"]
    said = [metadata["uid"], metadata.get("labels"), metadata.get("annotations"), observed["spec"]]
    return hashlib.sha256(sorted_bytes(said)).hexdigest()


async def plan_targets(session: Session, path: str) -> list[Target]:
    """What the plan says to do, once it is known that nothing of it has changed."""
    document = _read(session, path)
    for entry in document["plans"]:
        await _check_unchanged(session, entry)
    return [Target(entry["workload"], _edit(session, entry), entry) for entry in document["plans"]]


def _edit(session: Session, entry: JsonObject) -> Edit:
    desired = entry["desired"]

    def edit(observed: JsonObject | None) -> JsonObject:
        if fingerprint(observed) != entry["observed"]:
            raise _changed(entry["workload"])
        metadata: JsonObject = (
            dict(observed["metadata"])
            if observed
            else {"name": entry["workload"], "namespace": session.namespace}
        )
        for key in ("labels", "annotations"):
            if desired[key] or metadata.get(key):
                metadata[key] = desired[key]
        whole = observed or {"apiVersion": WORKLOAD.api_version, "kind": WORKLOAD.kind}
        return {**whole, "metadata": metadata, "spec": desired["spec"]}

    return edit


async def _check_unchanged(session: Session, entry: JsonObject) -> None:
    """Before the first write: all of the plan, or nothing."""
    try:
        observed = await session.client.get_plain(
            WORKLOAD, Ref(session.namespace, entry["workload"])
        )
    except NotFound:
        observed = None
    if fingerprint(observed) != entry["observed"]:
        raise _changed(entry["workload"])


def _changed(name: str) -> ConflictError:
    return ConflictError(
        f"Workload {name!r} has changed since the plan was made; nothing was written.",
        "Make a new plan with --plan-out.",
    )


def _read(session: Session, path: str) -> JsonObject:
    file: Path = session.environment.cwd / path
    try:
        document = json.loads(read_text_file(file, path, PLAN_BYTES_MAX))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{path} is not a plan of this command.", "Make one with --plan-out.")
    place = (document["place"], document["namespace"])
    if place != (session.target_name, session.namespace):
        raise UsageError(f"The plan is for {document['place']}, not for {session.target_name}.")
    return document
