"""``cell token|join|list|drain|undrain|leave``: manage the cells of a platform, for its operator.

All commands except ``join`` connect to the hub (default context ``hub``). ``join`` runs on the
machine of the new cell. The token is never on the command line, where other users could read it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import click

from datum_compute.api.errors import ApiError, Forbidden, Unauthorized, Unreachable
from datum_compute.api.kinds import JOIN_TOKEN
from datum_compute.api.membership import JoinToken, JoinTokenSpec
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.app.cell_membership import Joining
from datum_compute.app.cell_membership import join as joined
from datum_compute.app.state_credentials import new_join_token
from datum_compute.app.state_directory import StateError
from datum_compute.cli.commands.cells import drain, leave, list_cells, undrain
from datum_compute.cli.connect.session import Session, run_loop, run_on_hub
from datum_compute.cli.environment import (
    JOIN_TOKEN_VARIABLE,
    CliEnvironment,
    read_file,
    read_stdin,
    read_text_file,
)
from datum_compute.cli.errors import ForbiddenError, OtherError, UsageError, from_api_error
from datum_compute.cli.options import connection_options, output_option, parse_duration
from datum_compute.cli.render.documents import JoinTokenDocument, to_document
from datum_compute.cli.render.output import build_output
from datum_compute.server.http.listen import HOST

# --- The join token, read from a file, stdin or the environment


@dataclass(frozen=True, slots=True)
class GivenToken:
    token: str = field(repr=False)
    hub: str
    authority: bytes | None


def read_token(
    environment: CliEnvironment, file: str | None, *, hub: str, hub_ca: Path | None
) -> GivenToken:
    """Read the token, and the address of its hub from flags or from ``cell token -o json``."""
    text, source = _text(environment, file)
    document = _document(text, source)
    token = document.get("token", "") if document else text.strip()
    address = hub or document.get("hub", "")
    authority = document.get("authority", "").encode() or None
    if hub_ca is not None:
        authority = read_file(hub_ca.expanduser(), str(hub_ca))
    if not token or not token.isprintable() or " " in token:
        raise UsageError(f"{source} contains no join token.")
    if not address.startswith("https://"):
        raise UsageError("The address of the hub is missing.", "Pass --hub=https://HOST:PORT.")
    return GivenToken(token, address, authority)


def _text(environment: CliEnvironment, file: str | None) -> tuple[str, str]:
    if file == "-":
        return read_stdin(environment.stdin), "stdin"
    if file:
        return read_text_file(Path(file).expanduser(), file), file
    named = environment.environ.get(JOIN_TOKEN_VARIABLE, "")
    if not named:
        raise UsageError(
            "The join token is missing.", f"Pass --token-file=FILE, or set {JOIN_TOKEN_VARIABLE}."
        )
    return named, f"${JOIN_TOKEN_VARIABLE}"


def _document(text: str, source: str) -> dict[str, str]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not the output of 'cell token -o json': {error}.") from None
    return {name: value for name, value in found.items() if isinstance(value, str)}


# --- cell


@click.group(short_help="Join, drain and remove cells.", invoke_without_command=True)
@click.pass_context
def cell(ctx: click.Context) -> None:
    """Join, list, drain and remove the cells of a platform. For operators of the platform.

    \b
    Example:
      datumctl compute cell list
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cell.command()
@click.option(
    "--cell", "for_cell", default="", metavar="NAME", help="Allow only this cell to use the token."
)
@click.option(
    "--ttl",
    "lifetime_s",
    default="1h",
    show_default=True,
    metavar="DURATION",
    callback=lambda _ctx, _param, value: parse_duration(value),
    help="Lifetime of the token.",
)
@output_option("text", "json")
@connection_options
@click.pass_context
def token(ctx: click.Context, for_cell: str, lifetime_s: int, output_format: str) -> None:
    """Create a token with which one cell can join once.

    The hub stores only a digest, so the token cannot be shown again. With -o json, the output also
    contains the address and the certificate authority of the hub, which 'cell join' needs. With
    the token of a cell that is a member, a new machine replaces the previous one.

    \b
    Example:
      datumctl compute cell token --cell=dfw -o json
    """

    async def body(session: Session) -> None:
        made = new_join_token()
        expires = timestamp(session.environment.now() + lifetime_s)
        spec = JoinTokenSpec(token_hash=made.token_hash, expires_at=expires, cell=for_cell)
        kept = JoinToken(metadata=ObjectMeta(name=made.name), spec=spec)
        await session.client.create(JOIN_TOKEN, kept)
        if output_format == "json":
            server, authority = session.server
            document = JoinTokenDocument(
                token=made.text,
                hub=server,
                expires=expires,
                authority=(authority or b"").decode(),
            )
            session.output.json(to_document(document))
        else:
            session.output.data(made.text)
        session.output.note(f"The token can be used once, until {expires}.")

    run_on_hub(ctx, body)


@cell.command()
@click.option("--name", required=True, metavar="NAME", help="Name of the cell.")
@click.option("--city", required=True, metavar="CITY", help="City of the cell, such as DFW.")
@click.option(
    "--hub", default="", metavar="URL", help="Address of the hub. Default: from the token file."
)
@click.option(
    "--hub-ca",
    type=click.Path(path_type=Path),
    help="CA certificate of the hub (PEM). Default: from the token file.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="File with the token, or '-' for stdin.  [default: $DATUM_JOIN_TOKEN]",
)
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="State directory of the cell.",
)
@click.option(
    "--advertise",
    default=HOST,
    show_default=True,
    metavar="HOST",
    help="Address that the hub uses to reach this cell.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port of the cell. 0: any free port."
)
@click.pass_obj
def join(
    environment: CliEnvironment,
    name: str,
    city: str,
    hub: str,
    hub_ca: Path | None,
    token_file: str | None,
    state_dir: Path,
    advertise: str,
    port: int,
) -> None:
    """Make this machine a cell: exchange a token for the credentials of the cell.

    Joining is idempotent: after an interruption, run the command again with the same state
    directory. Then start the cell: compute-cell --state-dir=DIR.

    \b
    Example:
      datumctl compute cell join --name=dfw --city=DFW --token-file=token.json --state-dir=./dfw
    """
    given = read_token(environment, token_file, hub=hub, hub_ca=hub_ca)
    joining = Joining(
        state_dir.expanduser().absolute(),
        name,
        city,
        given.hub,
        given.token,
        authority=given.authority,
        advertise=advertise,
        port=port,
    )
    now = datetime.fromtimestamp(environment.now(), UTC)
    try:
        membership = run_loop(joined(joining, environment.open_transport, now))
    except Unauthorized as error:
        hint = f"Create another one: {environment.command('cell', 'token')}"
        raise ForbiddenError(f"{given.hub} rejected the join token.", hint) from error
    except Forbidden as error:
        raise ForbiddenError(f"{error}.") from error
    except ApiError as error:
        raise from_api_error(error, environment.command) from error
    except (StateError, OSError, ValueError) as error:
        raise OtherError(f"{error}.") from error
    except Unreachable as error:
        raise OtherError(str(error), "Run the command again: joining is idempotent.") from error
    output = build_output(environment)
    output.data(f"Cell {membership.cell} has joined {membership.hub} for {membership.city}.")
    output.note(f"Start it: compute-cell --state-dir={joining.state_dir}")


for command in (list_cells, drain, undrain, leave):
    cell.add_command(command)

COMMAND = cell
