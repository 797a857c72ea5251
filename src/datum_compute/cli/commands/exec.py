"""``exec``: runs a command in an instance, through the gateway of the platform."""

from __future__ import annotations

import json

import click

from datum_compute.cli.commands.instances import find_instance
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.containers import check_container
from datum_compute.cli.errors import UsageError
from datum_compute.cli.naming import container_option, instance_argument
from datum_compute.cli.options import YES, connection_options

_YES = ("-y", YES)


class ExecCommand(click.Command):
    """Accepts -y before ``--``. After it, and without it, the option may be that of the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            end = args.index("--")
            args = [*(word for word in args[:end] if word not in _YES), *args[end:]]
        elif any(word in _YES for word in args):
            raise click.UsageError("Write -- before the command, if -y is an option of it.", ctx)
        return super().parse_args(ctx, args)


@click.command("exec", cls=ExecCommand, short_help="Run a command in an instance.")
@instance_argument
@click.argument("command", nargs=-1, required=True)
@container_option
@click.option("-i", "--stdin", is_flag=True, help="Pass stdin on.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal.")
@connection_options
@click.pass_context
def exec_command(
    ctx: click.Context,
    name: str,
    command: tuple[str, ...],
    container: str | None,
    stdin: bool,
    tty: bool,
) -> None:
    """Run a command in the instance NAME, and end with its exit code.

    127 is a command that there is not, 126 one that cannot be run. The command is ended when the
    connection to it is.

    \b
    Examples:
      datumctl compute exec web-default-dfw-0 -- ls /
      datumctl compute exec web-default-dfw-0 -it -- sh
    """

    async def body(session: Session) -> int:
        from datum_compute.cli.remoteprocess import RemoteProcess

        instance = await find_instance(session, name)
        check_container(instance.spec, container)
        if tty and not session.surroundings.stdin.isatty():
            hint = "Leave -t out to pass on what stdin holds."
            raise UsageError("-t gives a terminal, and stdin is none.", hint)
        query = {
            "command": json.dumps(command),
            "container": container or "",
            "stdin": "true" if stdin else "",
            "tty": "true" if tty else "",
        }
        asked = {key: value for key, value in query.items() if value}
        process = await RemoteProcess.begun(session, name, asked)
        return await process.run(stdin=stdin, tty=tty)

    ctx.exit(run_in_session(ctx, body))


COMMAND = exec_command
