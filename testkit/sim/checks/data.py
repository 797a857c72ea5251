"""Referenced data of workloads: what users write, and the checks I18 and I26.

All workloads of a project that reference data share one ConfigMap and one Secret, so that
references are counted. The bytes of the Secret begin with a marker that is searched for as text and
as base64.
"""

from __future__ import annotations

import base64
from typing import Any

from datum_compute.api.compute.referenced_data import references_of_server
from datum_compute.api.compute.server import Server
from datum_compute.api.kinds import CONFIG_MAP, SECRET, WORK
from datum_compute.api.meta.codec import DecodeError, JsonObject, from_json
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PlaneName
from testkit.sim.checks.state import ClusterState, RowChange

NAME, KEY = "settings", "value"
# Three bytes are four characters of base64: a marker of 18 bytes is found whatever follows it.
_MARKER = b"bytes of a secret:"
_MARKERS = (_MARKER, base64.b64encode(_MARKER))
# Works carry the Secrets that the hub sends to cells, as in Karmada.
_MAY_CONTAIN = (SECRET.resource, WORK.resource)


def data_fields() -> JsonObject:
    """Return the environment of a container: one key of each source."""
    config = {"configMapKeyRef": {"name": NAME, "key": KEY}}
    secret = {"secretKeyRef": {"name": NAME, "key": KEY}}
    return {"SETTING": config, "PASSWORD": secret}


def data_content(kind: KindInfo[Any], project: str, number: int) -> JsonObject:
    if kind is CONFIG_MAP:
        return {"data": {KEY: f"setting {number} of {project}"}}
    content = _MARKER + f"{number} of {project}".encode()
    return {"data": {KEY: base64.b64encode(content).decode()}}


def i18_secret_bytes_stay_in_secrets(change: RowChange) -> str:
    """I18: the bytes of a Secret occur only in Secrets and in the Works that carry them."""
    if change.body is None or change.key.resource in _MAY_CONTAIN:
        return ""
    if any(shown in change.body for shown in _MARKERS):
        where = f"{change.plane} {change.key.resource} {change.key.name}"
        return f"I18: {where} contains bytes of a Secret"
    return ""


def i26_runs_with_the_data_on_record(state: ClusterState, change: RowChange) -> str:
    """I26: a machine runs with all its required data, in the recorded versions."""
    if change.after is None or (change.plane, change.key.name) in state.tampered:
        return ""
    try:
        server = from_json(change.after, Server)
    except DecodeError:
        return ""  # an invalid object of an operator
    if server.status.phase != "Running":
        return ""
    machine_id = f"{change.key.namespace}/{change.key.name}/{server.metadata.uid}"
    provider = state.providers.get(PlaneName(change.plane))
    machine = provider.alive().get(machine_id) if provider is not None else None
    if machine is None:
        return ""
    pins = [f"{p.kind}/{p.name}@{p.resource_version}" for p in server.status.referenced_data]
    if sorted(machine.data) != sorted(pins):
        return f"I26: {change.plane} {machine_id} runs with {machine.data}, recorded are {pins}"
    given = {name.partition("@")[0] for name in machine.data}
    needed = {str(r.source) for r in references_of_server(server.spec) if not r.optional}
    missing = sorted(needed - given)
    return f"I26: {change.plane} {machine_id} runs without {missing}" if missing else ""
