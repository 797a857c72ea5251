"""Data that templates refer to, in the simulated world: what users write, and what must hold of it.

All workloads of a project that refer to data share one ConfigMap and one Secret, so that references
are counted. The Secret's bytes begin with a mark that is known by sight, as text and as base64.
"""

from __future__ import annotations

import base64
from typing import Any

from datum_compute.api.codec import DecodeError, JsonObject, typed
from datum_compute.api.kinds import CONFIG_MAP, SECRET, WORK
from datum_compute.api.meta import KindInfo
from datum_compute.api.plane import PlaneName
from datum_compute.api.references import references_of_server
from datum_compute.api.server import Server
from testkit.sim.checks.state import Step, Truth

NAME, KEY = "settings", "value"
# Three bytes are four letters of base64: a mark of 18 bytes shows whatever follows it.
_MARK = b"bytes of a secret:"
_SHOWN = (_MARK, base64.b64encode(_MARK))
# Works carry what the hub sends to cells, as Karmada's do.
_MAY_HOLD = (SECRET.resource, WORK.resource)


def data_fields() -> JsonObject:
    """Of a container: one key of each source."""
    config = {"configMapKeyRef": {"name": NAME, "key": KEY}}
    secret = {"secretKeyRef": {"name": NAME, "key": KEY}}
    return {"SETTING": config, "PASSWORD": secret}


def data_content(kind: KindInfo[Any], project: str, number: int) -> JsonObject:
    if kind is CONFIG_MAP:
        return {"data": {KEY: f"setting {number} of {project}"}}
    content = _MARK + f"{number} of {project}".encode()
    return {"data": {KEY: base64.b64encode(content).decode()}}


def i18_secret_bytes_stay_in_secrets(step: Step) -> str:
    """I18: the bytes of a Secret are in Secrets, and on their way to cells."""
    if step.body is None or step.key.resource in _MAY_HOLD:
        return ""
    if any(shown in step.body for shown in _SHOWN):
        return f"I18: {step.plane} {step.key.resource} {step.key.name} holds bytes of a Secret"
    return ""


def i26_runs_with_the_data_on_record(truth: Truth, step: Step) -> str:
    """I26: a machine has all the data that it cannot do without, in the versions on record."""
    if step.after is None or (step.plane, step.key.name) in truth.tampered:
        return ""
    try:
        server = typed(step.after, Server)
    except DecodeError:
        return ""  # an odd object of an operator
    if server.status.phase != "Running":
        return ""
    machine_id = f"{step.key.namespace}/{step.key.name}/{server.metadata.uid}"
    provider = truth.providers.get(PlaneName(step.plane))
    machine = provider.alive().get(machine_id) if provider is not None else None
    if machine is None:
        return ""
    pins = [f"{p.kind}/{p.name}@{p.resource_version}" for p in server.status.referenced_data]
    if sorted(machine.data) != sorted(pins):
        return f"I26: {step.plane} {machine_id} runs with {machine.data}, on record are {pins}"
    given = {name.partition("@")[0] for name in machine.data}
    needed = {str(r.source) for r in references_of_server(server.spec) if not r.optional}
    missing = sorted(needed - given)
    return f"I26: {step.plane} {machine_id} runs without {missing}" if missing else ""
