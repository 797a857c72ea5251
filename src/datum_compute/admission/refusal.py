"""The error that lists everything that is wrong with an object, in the words clients know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.api.errors import Cause, Invalid
from datum_compute.api.meta.objects import KindInfo


def invalid(kind: KindInfo[Any], name: str, causes: Sequence[Cause]) -> Invalid:
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    listed = [
        f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes
    ]
    shown = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    message = f'{qualified} "{name}" is invalid: {shown}'
    return Invalid(message, name=name, group=kind.group, kind=kind.kind, causes=causes)
