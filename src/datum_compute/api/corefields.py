"""Fields that several core kinds share: bytes as base64, the two kinds of time, references."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct

# Base64 text. Values of this format are never repeated in an error: they may be secret.
Base64 = Annotated[str, Meta(extra_json_schema={"format": "byte"})]
SecretText = Annotated[str, Meta(extra_json_schema={"format": "password"})]
# Whole seconds and microseconds; admission normalises what callers send.
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
MicroTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Points at any object; every part is optional, as in Kubernetes."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class LocalObjectReference(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
