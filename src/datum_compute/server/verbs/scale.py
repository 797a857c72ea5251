"""The scale subresource: any kind with replicas, seen as an autoscaling/v1 Scale.

A change of the Scale is a change of one field of the object, so it passes the same checks. Where
nobody has said how many replicas, the Scale says the default of the schema, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datum_compute.api.errors import BadRequest, Invalid, shorten
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.json_path import field_names, value_at, with_value_at
from datum_compute.server.discovery.resources import ServedResource
from datum_compute.server.encoding.body import as_object
from datum_compute.server.encoding.responses import field_error
from datum_compute.server.routing import ApiRequest

GROUP, VERSION, KIND = "autoscaling", "v1", "Scale"
REPLICAS_MAX = 2**31 - 1
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def is_scale(request: ApiRequest) -> bool:
    return request.route.subresource == "scale"


def scale_of(resource: ServedResource, obj: JsonObject) -> JsonObject:
    assert resource.kind.scale is not None
    paths = resource.kind.scale
    wanted = value_at(obj, paths.spec_replicas_path)
    if wanted is None:
        wanted = _default_at(resource.schema, paths.spec_replicas_path)
    status: JsonObject = {"replicas": _number(value_at(obj, paths.status_replicas_path))}
    selector = value_at(obj, paths.label_selector_path) if paths.label_selector_path else None
    if isinstance(selector, str) and selector:
        status["selector"] = selector
    metadata = obj["metadata"]
    return {
        "kind": KIND,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {name: metadata[name] for name in _METADATA if name in metadata},
        "spec": {"replicas": _number(wanted)},
        "status": status,
    }


def propose_object(
    request: ApiRequest, propose: Callable[[JsonObject], JsonObject]
) -> Callable[[JsonObject], JsonObject]:
    """Return ``propose``. For a request of a Scale, return a function that applies ``propose`` to
    the Scale of an object and returns the changed object."""
    if not is_scale(request):
        return propose

    def proposed(old: JsonObject) -> JsonObject:
        scale = check_scale(propose(scale_of(request.resource, old)))
        replicas = as_object(scale.get("spec") or {}).get("replicas", 0)
        identified = {**old, "metadata": {**old["metadata"], **_identity(scale)}}
        return _with_replicas(request, identified, replicas)

    return proposed


def object_config(request: ApiRequest, scale: JsonObject) -> JsonObject:
    """Return the configuration of the object that corresponds to an applied Scale."""
    config = {
        "apiVersion": request.kind.api_version,
        "kind": request.kind.kind,
        "metadata": _identity(scale),
    }
    replicas = as_object(scale.get("spec") or {}).get("replicas")
    return config if replicas is None else _with_replicas(request, config, replicas)


def check_scale(sent: JsonObject) -> JsonObject:
    """Return ``sent``. Raise BadRequest if it is not a Scale."""
    if (sent.get("kind", KIND), sent.get("apiVersion", "")) != (KIND, f"{GROUP}/{VERSION}"):
        raise BadRequest(f"the body must be a {KIND} of {GROUP}/{VERSION}")
    return sent


def _identity(scale: JsonObject) -> JsonObject:
    """The metadata of a Scale that is a precondition for the object."""
    sent = as_object(scale.get("metadata") or {})
    return {name: sent[name] for name in _METADATA if sent.get(name)}


def _with_replicas(request: ApiRequest, obj: JsonObject, replicas: Any) -> JsonObject:
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        why = "must be a whole number, greater than or equal to 0"
        raise _invalid(request, shorten(str(replicas)), why)
    if replicas > REPLICAS_MAX:
        raise _invalid(request, str(replicas), f"must be at most {REPLICAS_MAX}")
    assert request.kind.scale is not None
    names = field_names(request.kind.scale.spec_replicas_path)
    assert names is not None, "specReplicasPath is a path of fields"
    return with_value_at(obj, names, replicas)


def _invalid(request: ApiRequest, value: str, why: str) -> Invalid:
    cause = field_error("spec.replicas", value, why)
    name = request.route.name
    message = f'{KIND}.{GROUP} "{name}" is invalid: {cause.field}: {cause.message}'
    return Invalid(message, name=name, group=GROUP, kind=KIND, causes=[cause])


def _default_at(schema: JsonObject, path: str) -> Any:
    for name in field_names(path) or ():
        schema = schema.get("properties", {}).get(name, {})
    return schema.get("default")


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
