"""``access status|request|renew``: show or request the access of the project to compute."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import click

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import ENTITLEMENT
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import StoppedError, TimedOutError, UnavailableError
from datum_compute.cli.groups import NounGroup
from datum_compute.cli.options import connection_options, output_option, parse_duration, yes_option
from datum_compute.cli.render.documents import AccessDocument, extend_document
from datum_compute.cli.render.events import AccessEvent
from datum_compute.cli.render.listing import age_since, print_document, read_options
from datum_compute.cli.render.output import render_age
from datum_compute.cli.render.prompt import confirm
from datum_compute.cli.workload.access import (
    STATE_TEXTS,
    Access,
    AccessState,
    access_error,
    access_timeout_error,
    next_step,
    read_access,
    request_access,
    wait_for_state,
)

_DRAIN_S = 30.0


@click.group(cls=NounGroup, default="status", short_help="Show or request access to compute.")
def access() -> None:
    """Show whether this project may use compute, or request access.

    \b
    Examples:
      datumctl compute access
      datumctl compute access request --message="For the web shop" --wait
      datumctl compute access renew
    """


@access.command("status")
@read_options
@connection_options
@click.pass_context
def status(ctx: click.Context, output_format: str) -> None:
    """Show the access of this project to compute, the message of the provider and the next step.

    \b
    Example:
      datumctl compute access status -o json
    """

    async def body(session: Session) -> None:
        found = await read_access(session)
        lines = [
            ("Service", found.service),
            ("Project", session.target_name),
            ("Status", STATE_TEXTS[found.state]),
            ("Requested", _age(session, found)),
            ("Message", found.message),
            ("Next", next_step(found, session.command)),
        ]
        print_document(
            session.output,
            output_format,
            lambda: access_document(session, found),
            lines,
            f"access/{found.service}",
        )

    run_in_session(ctx, body)


def _age(session: Session, found: Access) -> str:
    age = age_since(found.requested_at, session.environment.now())
    return "" if age == "-" else f"{age} ago"


def access_document(session: Session, found: Access) -> AccessDocument:
    return AccessDocument(
        service=found.service,
        description=found.description,
        project=session.target_name,
        state=str(found.state),
        message=found.message,
        requested_at=found.requested_at,
        entitlement=to_json(found.entitlement.status) if found.entitlement else {},
    )


def _wait_options(command: click.decorators.FC) -> click.decorators.FC:
    command = click.option(
        *("--timeout", "timeout_s"),
        default="30m",
        show_default=True,
        metavar="DURATION",
        callback=lambda _ctx, _param, value: parse_duration(value),
        help="Maximum time to wait with --wait.",
    )(command)
    command = click.option("--wait", is_flag=True, help="Wait for the decision.")(command)
    return click.option("--message", default="", metavar="TEXT", help="Message to the provider.")(
        command
    )


@access.command("request")
@_wait_options
@output_option("table", "json")
@connection_options
@click.pass_context
def request(
    ctx: click.Context, message: str, wait: bool, timeout_s: int, output_format: str
) -> None:
    """Request access to compute. A repeated command keeps the first request.

    \b
    Example:
      datumctl compute access request --message="For the web shop"
    """

    async def body(session: Session) -> None:
        await _ask(session, message, timeout_s if wait else None)

    run_in_session(ctx, body, as_json=output_format == "json")


@access.command("renew")
@_wait_options
@yes_option
@output_option("table", "json")
@connection_options
@click.pass_context
def renew(
    ctx: click.Context, message: str, wait: bool, timeout_s: int, yes: bool, output_format: str
) -> None:
    """Withdraw an earlier request and request access again, for example after a denial.

    \b
    Example:
      datumctl compute access renew -y --wait
    """

    async def body(session: Session) -> None:
        found = await read_access(session)
        if found.entitlement is not None:
            if not yes:
                question = f"Withdraw and repeat the request of {session.target_name} for compute?"
                confirm(session.environment, question)
            await _withdraw(session, found)
        await _ask(session, message, timeout_s if wait else None)

    run_in_session(ctx, body, as_json=output_format == "json")


async def _withdraw(session: Session, found: Access) -> None:
    """Delete the request, and wait until it is gone: the new one has the same name."""
    ref = Ref("", found.service)
    with suppress(NotFound):
        await session.client.delete(ENTITLEMENT, ref)
    try:
        await session.client.wait(
            ENTITLEMENT, ref, lambda entitlement: entitlement is None, timeout_s=_DRAIN_S
        )
    except TimeoutError:
        raise TimedOutError(
            "The earlier request is not deleted yet.", "Run the command again in a few seconds."
        ) from None


async def _ask(session: Session, message: str, timeout_s: int | None) -> None:
    found = await read_access(session)
    if found.state is AccessState.UNKNOWN:
        raise UnavailableError("Access to compute is not managed on this platform.")
    if found.state in (AccessState.NOT_REQUESTED, AccessState.PROCESSING):
        found = await request_access(session, found, message)
    passing = {AccessState.PROCESSING, AccessState.PENDING}
    place = session.target_name
    if timeout_s is not None and found.state in passing:
        session.print_note("Waiting for the decision. Ctrl-C stops waiting and keeps the request.")
        try:
            found = await wait_for_state(session, found, passing, timeout_s)
        except asyncio.CancelledError:
            raise StoppedError("Stopped waiting; the request remains.") from None
        if found.state in passing:
            retry_command = session.command("access", "request", "--wait")
            hint = f"Wait for it again: {retry_command}"
            raise access_timeout_error(found, place, render_age(timeout_s), hint)
    session.emit_event(extend_document(AccessEvent, access_document(session, found)))
    if not session.as_json:
        session.output.data(f"access/{found.service} {STATE_TEXTS[found.state]}")
    refused = access_error(found, session.command, place, session.environment.now())
    if refused is not None and found.state not in passing:
        raise refused


COMMAND = access
