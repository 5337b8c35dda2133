"""The command that prints a shell's completion script."""

import click
from click.shell_completion import get_completion_class

from hotwirectl.near import Choice
from hotwirectl.printers import stdio
from hotwirectl.settings import Command

PROGRAM = "hotwirectl"
COMPLETE_VAR = "_HOTWIRECTL_COMPLETE"


@click.command(
    "completion", cls=Command, formats=(), example='eval "$(hotwirectl completion bash)"'
)
@click.argument("shell", type=Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the completion script for SHELL.

    \b
    For bash:  eval "$(hotwirectl completion bash)"
    For zsh:   eval "$(hotwirectl completion zsh)"
    For fish:  hotwirectl completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choice allows no other
    root = ctx.find_root().command
    stdio.out(kind(root, {}, PROGRAM, COMPLETE_VAR).source())
