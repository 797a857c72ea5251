"""Errors about an object, in the words Kubernetes clients know.

Details name the plural for 403, 404 and 409, and the kind for 422.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.admission.refusal import invalid as invalid
from datum_compute.api.errors import (
    AlreadyExists,
    Cause,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RequestEntityTooLarge,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.report import Report

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def not_found(kind: KindInfo[Any], name: str) -> NotFound:
    message = f'{kind.resource} "{name}" not found'
    return NotFound(message, name=name, group=kind.group, kind=kind.plural)


def already_exists(kind: KindInfo[Any], name: str) -> AlreadyExists:
    message = f'{kind.resource} "{name}" already exists'
    return AlreadyExists(message, name=name, group=kind.group, kind=kind.plural)


def conflict(kind: KindInfo[Any], name: str, why: str = MODIFIED) -> Conflict:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return Conflict(message, name=name, group=kind.group, kind=kind.plural)


def forbidden(kind: KindInfo[Any], name: str, why: str, causes: Sequence[Cause] = ()) -> Forbidden:
    message = f'{kind.resource} "{name}" is forbidden: {why}'
    return Forbidden(message, name=name, group=kind.group, kind=kind.plural, causes=causes)


def stopped_check(
    error: Invalid | RequestEntityTooLarge, kind: KindInfo[Any], obj: JsonObject, report: Report
) -> Invalid | RequestEntityTooLarge:
    """Return the error that stopped the check of an object, with the name of the object and the
    errors found before."""
    name, causes = obj["metadata"].get("name", ""), (*report.errors, *error.causes)
    if isinstance(error, Invalid):
        return invalid(kind, name, causes)
    message = f'{kind.resource} "{name}" is too large: {error.message}'
    about = {"name": name, "group": kind.group, "kind": kind.plural}
    return RequestEntityTooLarge(message, causes=causes, **about)


def field_error(field: str, value: str, why: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f'Invalid value: "{shortened(value)}": {why}')


def field_forbidden(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def shortened(text: str, length_max: int = 120) -> str:
    """Text of a caller as it may be repeated in an error."""
    return text if len(text) <= length_max else text[: length_max - 3] + "..."
