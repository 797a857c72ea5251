"""Rules for Secrets: stringData moves into data, the type stays, and each type has its keys.

No message ever repeats a value.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode

_DOCKER_CONFIG = "kubernetes.io/dockerconfigjson"
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
_ACCOUNT_NAME = "kubernetes.io/service-account.name"

# Keys that all must, or of which one must, be there.
_ALL_OF: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    _DOCKER_CONFIG: (".dockerconfigjson",),
}
_ONE_OF: Mapping[str, tuple[str, ...]] = {"kubernetes.io/basic-auth": ("username", "password")}


def with_string_data_merged(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """What is written as text is stored as base64; it is never read back as text."""
    if "stringData" not in new:
        return new
    added = {key: base64.b64encode(v.encode()).decode() for key, v in new["stringData"].items()}
    rest = {name: value for name, value in new.items() if name != "stringData"}
    data = {**new.get("data", {}), **added}
    return {**rest, "data": data} if data else rest


def type_is_immutable(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is not None and new["type"] != old.get("type", new["type"]):
        why = f'Invalid value: "{new["type"]}": field is immutable; create another Secret'
        yield Cause("type", "FieldValueInvalid", why)


def has_the_keys_of_its_type(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    data = new.get("data", {})
    for key in _ALL_OF.get(new["type"], ()):
        if key not in data:
            yield _required(f"data[{key}]")
    one_of = _ONE_OF.get(new["type"], ())
    if one_of and not any(key in data for key in one_of):
        yield from (_required(f"data[{key}]") for key in one_of)
    if new["type"] == _ACCOUNT_TOKEN and not new["metadata"].get("annotations", {}).get(
        _ACCOUNT_NAME
    ):
        yield _required(f"metadata.annotations[{_ACCOUNT_NAME}]")


def docker_config_is_json(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    text = new.get("data", {}).get(".dockerconfigjson")
    if new["type"] != _DOCKER_CONFIG or text is None:
        return
    try:
        decode(base64.b64decode(text))
    except DecodeError:
        why = "Invalid value: <hidden>: must be base64 of a JSON document"
        yield Cause("data[.dockerconfigjson]", "FieldValueInvalid", why)


def _required(field: str) -> Cause:
    return Cause(field, "FieldValueRequired", "Required value")
