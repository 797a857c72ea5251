"""A command's conversation with one plane. The one place that starts the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from datum_compute.api.codec import DecodeError
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.cli.context import Surroundings
from datum_compute.cli.errors import OtherError, UsageError, explained
from datum_compute.cli.options import chosen
from datum_compute.cli.output import Output, build_output
from datum_compute.cli.plane import Located, locate
from datum_compute.client.client import Client
from datum_compute.client.kubeconfig import build_client

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """``place`` is the plane as people know it, such as project/default; with the namespace where
    that is another than the usual one."""

    client: Client
    namespace: str
    place: str
    output: Output
    surroundings: Surroundings

    def command(self, *words: str) -> str:
        return self.surroundings.command(*words)


def run_in_session(ctx: click.Context, body: Callable[[Session], Awaitable[T]]) -> T:
    """Find the plane, connect, run the body, close."""
    surroundings: Surroundings = ctx.obj
    choice = chosen(ctx)
    located = locate(surroundings, choice)
    namespace = choice.namespace or located.connection.namespace
    return run_loop(_conversation(surroundings, located, namespace, body))


def run_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


async def _conversation(
    surroundings: Surroundings,
    located: Located,
    namespace: str,
    body: Callable[[Session], Awaitable[T]],
) -> T:
    connection = located.connection
    try:
        opened = surroundings.open_transport(connection)
    except ValueError as error:  # a certificate authority that is none
        raise OtherError(f"Context {connection.context!r}: {error}.") from error
    async with opened as transport:
        session = Session(
            client=build_client(connection, transport),
            namespace=namespace,
            place=_place(connection.context, namespace),
            output=build_output(surroundings),
            surroundings=surroundings,
        )
        try:
            return await body(session)
        except ApiError as error:
            raise explained(error, surroundings.program) from error
        except DecodeError as error:
            raise OtherError(
                f"The answer of {connection.server} cannot be read: {error}"
            ) from error
        except Unreachable as error:
            raise _silent(error, located, surroundings) from error


def _place(context: str, namespace: str) -> str:
    return context if namespace == "default" else f"{context}, namespace {namespace}"


def _silent(error: Unreachable, located: Located, surroundings: Surroundings) -> UsageError:
    if located.is_local_platform:
        return OtherError(
            f"The local platform at {located.connection.server} does not answer.",
            f"Start it: {surroundings.command('local', 'up')}",
        )
    return OtherError(str(error), "Choose another with --kubeconfig, --context or --project.")
