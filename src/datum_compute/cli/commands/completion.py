"""``completion SHELL``: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from datum_compute.cli.entry import complete_variable, executable_name
from datum_compute.cli.environment import CliEnvironment


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell. It completes commands, flags, and the names of
    workloads, instances and cities, which are read from the server with a short timeout.

    \b
    Examples:
      datumctl compute completion bash > ~/.local/share/bash-completion/completions/datumctl-compute
      datumctl compute completion zsh > ~/.zfunc/_datumctl-compute
      datumctl compute completion fish > ~/.config/fish/completions/datumctl-compute.fish
    """
    environment: CliEnvironment = ctx.obj
    found = get_completion_class(shell)
    assert found is not None, "the choices are the shells click knows"
    program = environment.program
    root = ctx.find_root().command
    script = found(root, {}, executable_name(program), complete_variable(program)).source()
    environment.stdout.write(script + "\n")  # unchanged, because it is a program


COMMAND = completion
