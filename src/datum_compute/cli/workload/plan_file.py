"""Plan files: ``--plan-out`` writes the plan that was shown, ``--plan`` applies exactly that plan.

A plan contains a fingerprint of the workload's uid, labels, annotations and spec. If the workload
has changed since, nothing is written. The file contains values of environment variables in clear
text, so only its owner can read it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject, sorted_bytes
from datum_compute.cli.connect.session import Session
from datum_compute.cli.environment import read_text_file
from datum_compute.cli.errors import ConflictError, UsageError
from datum_compute.cli.render.plan import render_plan
from datum_compute.cli.workload.edits import DeployTarget, Edit
from datum_compute.cli.workload.plan import WorkloadPlan

# Enough for many workloads, each with its old and its new spec.
PLAN_BYTES_MAX = 64 * 1024 * 1024
SCHEMA = "compute.datumapis.com/cli-plan/v1"


def write_plan_file(session: Session, path: str, plans: Sequence[WorkloadPlan]) -> None:
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
    session.print_note(f"Apply it: {session.command('deploy', f'--plan={path}')}")


def _entry(plan: WorkloadPlan) -> JsonObject:
    return {
        "workload": plan.name,
        "action": plan.action,
        "changes": render_plan(plan),
        "observed": fingerprint(plan.observed),
        "desired": {
            key: plan.desired["metadata"].get(key) or {} for key in ("labels", "annotations")
        }
        | {"spec": plan.desired["spec"]},
    }


def fingerprint(observed: JsonObject | None) -> str:
    """Return a digest of the uid and of the fields that users write; empty if there is none."""
    if observed is None:
        return ""
    metadata = observed["metadata"]
    fields = [
        metadata["uid"],
        metadata.get("labels"),
        metadata.get("annotations"),
        observed["spec"],
    ]
    return hashlib.sha256(sorted_bytes(fields)).hexdigest()


def read_plan_file(session: Session, path: str) -> list[DeployTarget]:
    return [
        DeployTarget(entry["workload"], _edit(session, entry), entry)
        for entry in _read_document(session, path)["plans"]
    ]


def _edit(session: Session, entry: JsonObject) -> Edit:
    desired = entry["desired"]

    def edit(observed: JsonObject | None) -> JsonObject:
        if fingerprint(observed) != entry["observed"]:
            raise ConflictError(
                f"Workload {entry['workload']!r} has changed since the plan was made; "
                "nothing was written.",
                "Create a new plan with --plan-out.",
            )
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


def _read_document(session: Session, path: str) -> JsonObject:
    file: Path = session.environment.cwd / path
    try:
        document = json.loads(read_text_file(file, path, PLAN_BYTES_MAX))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{path} is not a plan of this command.", "Create one with --plan-out.")
    place = (document["place"], document["namespace"])
    if place != (session.target_name, session.namespace):
        raise UsageError(f"The plan is for {document['place']}, not for {session.target_name}.")
    return document
