"""Names that exist, for a shell that completes a command: read live, quickly, or not at all.

Whatever goes wrong (no platform, no right, too slow) ends in no names: a press of TAB must never
print an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from datum_compute.api.meta.objects import KindInfo
    from datum_compute.cli.connect.session import Session


def workload_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _matching(_live(ctx, _workloads), incomplete)


def instance_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _matching(_live(ctx, _instances), incomplete)


def container_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _matching(_live(ctx, _containers), incomplete)


def city_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The last of a comma list is completed, those chosen before it are left out."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.upper().split(",") if before else []
    left = [city for city in _live(ctx, _cities) if city not in chosen]
    return [f"{before}{comma}{city}" for city in _matching(left, last.upper())]


def instance_type_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _matching(_live(ctx, _instance_types), incomplete)


def _matching(names: list[str], incomplete: str) -> list[str]:
    return [name for name in sorted(set(names)) if name.startswith(incomplete)]


async def _workloads(session: Session) -> list[str]:
    from datum_compute.api.kinds import WORKLOAD

    return await _names(session, WORKLOAD)


async def _instances(session: Session) -> list[str]:
    from datum_compute.api.kinds import INSTANCE

    return await _names(session, INSTANCE)


async def _names(session: Session, kind: KindInfo[Any]) -> list[str]:
    listed = await session.client.list(kind, session.namespace)
    return [item.metadata.name for item in listed.items]


async def _containers(session: Session) -> list[str]:
    from datum_compute.api.kinds import WORKLOAD

    listed = await session.client.list(WORKLOAD, session.namespace)
    return [
        container.name
        for workload in listed.items
        for container in workload.spec.template.spec.runtime.sandbox.containers
    ]


async def _cities(session: Session) -> list[str]:
    from datum_compute.api.kinds import LOCATION_BINDING
    from datum_compute.cli.commands.cities import city_of

    listed = await session.client.list(LOCATION_BINDING)
    return [city_of(binding) for binding in listed.items]


async def _instance_types(session: Session) -> list[str]:
    from datum_compute.api.kinds import INSTANCE_TYPE

    listed = await session.client.list(INSTANCE_TYPE)
    return [item.metadata.name for item in listed.items]


def _live(ctx: click.Context, read: Callable[[Session], Awaitable[list[str]]]) -> list[str]:
    import asyncio

    from datum_compute.cli.connect.session import run_in_session

    async def body(session: Session) -> list[str]:
        async with asyncio.timeout(session.environment.timeouts.completion_s):
            return await read(session)

    try:
        return run_in_session(ctx, body)
    except Exception:
        return []
