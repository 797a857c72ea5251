"""Check whether the registry serves the images of a workload, before it is deployed.

The gateway of the platform queries the registry. A missing or denied image is a problem. A registry
that cannot be reached now is only mentioned, because the cell may reach it later.
"""

from __future__ import annotations

import json

from datum_compute.api.compute.instance import Container
from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import ApiError, NotFound, ServiceUnavailable
from datum_compute.api.gateway import GatewayReason, has_gateway_reason, images_path
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import ForbiddenError, MissingError, UsageError
from datum_compute.cli.render.output import one_line

NOT_CHECKED = "not checked: this platform has no gateway that can query a registry"
SIMULATED = "instances are simulated here, no image is pulled"
_HINT = "Correct the reference or the pull secret, or deploy with --skip-checks."


async def check_images(
    session: Session, before: Workload | None, after: Workload
) -> tuple[list[str], list[UsageError]]:
    """Return a line for each image that is new or changed, and the images that cannot be pulled."""
    lines: dict[str, None] = {}
    problems: list[UsageError] = []
    unchanged = _pulls(before) if before else []
    for index, container in enumerate(after.spec.template.spec.runtime.sandbox.containers):
        if _pull(after, container) in unchanged:
            continue
        verdict = await _query_gateway(session, after, container)
        line = f"{container.image}: {_verdict_text(verdict)}"
        refused = verdict.get("outcome") in ("missing", "denied")
        if refused and line not in lines:
            field = f"spec.template.spec.runtime.sandbox.containers[{index}].image"
            error = MissingError if verdict["outcome"] == "missing" else ForbiddenError
            problems.append(error(f"{field} names {line}.", _HINT, field=field))
        lines[line] = None
    return list(lines), problems


def _pulls(workload: Workload) -> list[object]:
    containers = workload.spec.template.spec.runtime.sandbox.containers
    return [_pull(workload, container) for container in containers]


def _pull(workload: Workload, container: Container) -> object:
    """Return the fields that determine whether the image can be pulled."""
    sandbox = workload.spec.template.spec.runtime.sandbox
    return container.image, container.image_pull_policy, sandbox.image_pull_secrets


def _verdict_text(verdict: JsonObject) -> str:
    match verdict.get("outcome"):
        case "found":
            digest, words = verdict.get("digest", ""), verdict.get("words", "")
            return ", ".join(part for part in ("found", words, digest) if part)
        case "missing":
            return f"not found: {verdict['words']}"
        case "denied":
            return f"denied: {verdict['words']}"
        case "unknown":
            return f"not checked: {verdict['words']}"
        case _:
            return NOT_CHECKED


async def _query_gateway(session: Session, after: Workload, container: Container) -> JsonObject:
    """Return the verdict of the gateway; empty if there is no gateway or no permission."""
    sandbox = after.spec.template.spec.runtime.sandbox
    cities = [city for placement in after.spec.placements for city in placement.city_codes]
    query = {
        "image": container.image,
        "policy": container.image_pull_policy,
        "city": cities[0] if cities else "",
        "secrets": json.dumps([secret.name for secret in sandbox.image_pull_secrets]),
    }
    try:
        return await session.gateway.get_raw(images_path(session.namespace), query)
    except ServiceUnavailable as error:
        return {"outcome": "unknown", "words": one_line(error.message)}
    except NotFound as error:
        is_simulated = has_gateway_reason(error, GatewayReason.INSTANCES_SIMULATED)
        return {"outcome": "unknown", "words": SIMULATED} if is_simulated else {}
    except ApiError:
        return {}
