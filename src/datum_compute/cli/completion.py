"""Shell completion of existing names, read from the API.

Every error (no platform, no permission, a timeout) results in an empty list, because the TAB key
must never print an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from datum_compute.api.meta.objects import KindInfo
    from datum_compute.cli.connect.session import Session


def workload_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _filter_by_prefix(_read_names(ctx, _list_workload_names), incomplete)


def instance_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _filter_by_prefix(_read_names(ctx, _list_instance_names), incomplete)


def container_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _filter_by_prefix(_read_names(ctx, _list_container_names), incomplete)


def city_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the last city of a comma-separated list, without the cities before it."""
    before, comma, last = incomplete.rpartition(",")
    present = before.upper().split(",") if before else []
    others = [city for city in _read_names(ctx, _list_city_codes) if city not in present]
    return [f"{before}{comma}{city}" for city in _filter_by_prefix(others, last.upper())]


def instance_type_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _filter_by_prefix(_read_names(ctx, _list_instance_type_names), incomplete)


def _filter_by_prefix(names: list[str], incomplete: str) -> list[str]:
    return [name for name in sorted(set(names)) if name.startswith(incomplete)]


async def _list_workload_names(session: Session) -> list[str]:
    from datum_compute.api.kinds import WORKLOAD

    return await _list_names(session, WORKLOAD)


async def _list_instance_names(session: Session) -> list[str]:
    from datum_compute.api.kinds import INSTANCE

    return await _list_names(session, INSTANCE)


async def _list_names(session: Session, kind: KindInfo[Any]) -> list[str]:
    listed = await session.client.list(kind, session.namespace)
    return [item.metadata.name for item in listed.items]


async def _list_container_names(session: Session) -> list[str]:
    from datum_compute.api.kinds import WORKLOAD

    listed = await session.client.list(WORKLOAD, session.namespace)
    return [
        container.name
        for workload in listed.items
        for container in workload.spec.template.spec.runtime.sandbox.containers
    ]


async def _list_city_codes(session: Session) -> list[str]:
    from datum_compute.api.kinds import LOCATION_BINDING
    from datum_compute.cli.commands.cities import city_of

    listed = await session.client.list(LOCATION_BINDING)
    return [city_of(binding) for binding in listed.items]


async def _list_instance_type_names(session: Session) -> list[str]:
    from datum_compute.api.kinds import INSTANCE_TYPE

    listed = await session.client.list(INSTANCE_TYPE)
    return [item.metadata.name for item in listed.items]


def _read_names(ctx: click.Context, read: Callable[[Session], Awaitable[list[str]]]) -> list[str]:
    import asyncio

    from datum_compute.cli.connect.session import run_in_session

    async def body(session: Session) -> list[str]:
        async with asyncio.timeout(session.environment.timeouts.completion_s):
            return await read(session)

    try:
        return run_in_session(ctx, body)
    except Exception:
        return []
