"""``cell token|join|list|drain|undrain|leave``: the cells of a platform, for who runs it.

All but ``join`` talk to the hub (context ``hub`` unless another is named). ``join`` runs on the
machine that becomes the cell; a token never stands on its command line, where others could read it.
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
from datum_compute.cli.render.output import build_output
from datum_compute.server.http.listen import HOST

# --- Where a join token comes from: a file, stdin or the environment, never the command line


@dataclass(frozen=True, slots=True)
class GivenToken:
    token: str = field(repr=False)
    hub: str
    authority: bytes | None


def read_token(
    environment: CliEnvironment, file: str | None, *, hub: str, hub_ca: Path | None
) -> GivenToken:
    """The token, and where it is for: flags, or the document that ``cell token -o json`` prints."""
    text, source = _text(environment, file)
    document = _document(text, source)
    token = document.get("token", "") if document else text.strip()
    address = hub or document.get("hub", "")
    authority = document.get("authority", "").encode() or None
    if hub_ca is not None:
        authority = read_file(hub_ca.expanduser(), str(hub_ca))
    if not token or not token.isprintable() or " " in token:
        raise UsageError(f"{source} holds no join token.")
    if not address.startswith("https://"):
        raise UsageError("The address of the hub is missing.", "Pass --hub https://HOST:PORT.")
    return GivenToken(token, address, authority)


def _text(environment: CliEnvironment, file: str | None) -> tuple[str, str]:
    if file == "-":
        return read_stdin(environment.stdin), "stdin"
    if file:
        return read_text_file(Path(file).expanduser(), file), file
    named = environment.environ.get(JOIN_TOKEN_VARIABLE, "")
    if not named:
        raise UsageError(
            "There is no join token.", f"Pass --token-file FILE, or set {JOIN_TOKEN_VARIABLE}."
        )
    return named, f"${JOIN_TOKEN_VARIABLE}"


def _document(text: str, source: str) -> dict[str, str]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not what 'cell token -o json' prints: {error}.") from None
    return {name: value for name, value in found.items() if isinstance(value, str)}


# --- cell


@click.group(short_help="Join, drain and remove cells.", invoke_without_command=True)
@click.pass_context
def cell(ctx: click.Context) -> None:
    """Let cells join a platform, drain them, and let them leave. For who runs the platform.

    \b
    Example:
      datumctl compute cell list
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cell.command()
@click.option("--cell", "for_cell", default="", metavar="NAME", help="The only cell it is for.")
@click.option(
    "--ttl",
    "lifetime_s",
    default="1h",
    show_default=True,
    metavar="DURATION",
    callback=lambda _ctx, _param, value: parse_duration(value),
    help="How long it may be used.",
)
@output_option("text", "json")
@connection_options
@click.pass_context
def token(ctx: click.Context, for_cell: str, lifetime_s: int, output_format: str) -> None:
    """Make a token with which one cell can join, once.

    The hub keeps only its digest: what is printed here is not shown again. With -o json the
    address of the hub and its certificate authority come along, which is what 'cell join' needs.
    A token for a cell that is a member lets a new machine take its place.

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
            document = {"token": made.text, "hub": server, "expires": expires}
            session.output.json({**document, "authority": (authority or b"").decode()})
        else:
            session.output.data(made.text)
        session.output.note(f"It can be used once, until {expires}.")

    run_on_hub(ctx, body)


@cell.command()
@click.option("--name", required=True, metavar="NAME", help="Name of the cell.")
@click.option("--city", required=True, metavar="CITY", help="City that it serves, such as DFW.")
@click.option("--hub", default="", metavar="URL", help="Address of the hub; a token file may say.")
@click.option(
    "--hub-ca", type=click.Path(path_type=Path), help="Its authority (PEM); a token file may say."
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="File with the token, or '-' for stdin.  [default: $DATUM_JOIN_TOKEN]",
)
@click.option("--state-dir", required=True, type=click.Path(path_type=Path), metavar="DIR")
@click.option("--advertise", default=HOST, show_default=True, metavar="HOST", help="Of this cell.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port that it will use.")
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

    Run it again if the answer was lost: the key in the state directory makes sure that it is the
    same cell. Then start the cell: compute-cell --state-dir DIR.

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
        hint = f"Make another: {environment.command('cell', 'token')}"
        raise ForbiddenError(f"{given.hub} does not know this join token.", hint) from error
    except Forbidden as error:
        raise ForbiddenError(f"{error}.") from error
    except ApiError as error:
        raise from_api_error(error, environment.command) from error
    except (StateError, OSError, ValueError) as error:
        raise OtherError(f"{error}.") from error
    except Unreachable as error:
        raise OtherError(str(error), "Run it again: nothing can be joined twice.") from error
    output = build_output(environment)
    output.data(f"Cell {membership.cell} has joined {membership.hub} for {membership.city}.")
    output.note(f"Start it:  compute-cell --state-dir={joining.state_dir}")


for command in (list_cells, drain, undrain, leave):
    cell.add_command(command)

COMMAND = cell
