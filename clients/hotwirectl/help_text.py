"""How the help is laid out: options of a command apart from those of all, and an example."""

from collections.abc import Iterable, Mapping, Sequence

import click


def write_options(
    formatter: click.HelpFormatter, ctx: click.Context, own: Iterable[click.Parameter]
) -> None:
    """Writes the command's own options, then those that all commands have."""
    mine = set(own)
    for title, wanted in (("Options", True), ("Options of every command", False)):
        records = [
            record
            for param in ctx.command.get_params(ctx)
            if (param in mine) is wanted and (record := _record(param, ctx)) is not None
        ]
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def write_commands(
    formatter: click.HelpFormatter,
    commands: Mapping[str, click.Command],
    sections: Mapping[str, Sequence[str]],
) -> None:
    """Writes a line for each command, under the title of its section."""
    width = max(map(len, commands), default=0)
    limit = formatter.width - width - 6
    for title, names in sections.items():
        with formatter.section(title):
            formatter.write_dl(
                [(name.ljust(width), commands[name].get_short_help_str(limit)) for name in names]
            )


def epilog(example: str, more: str) -> str:
    r"""Returns the text below the options: the example, as it stands, then what else there is."""
    return f"\b\nExample:\n  {example}\n\n{more}" if example else more


def _record(param: click.Parameter, ctx: click.Context) -> tuple[str, str] | None:
    return None if isinstance(param, click.Argument) else param.get_help_record(ctx)
