"""The commands for contexts: context list, show, use, set, delete."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hotwirectl import text
from hotwirectl.config import file
from hotwirectl.config.model import KEYS, Config, Context
from hotwirectl.names import context_argument
from hotwirectl.near import Choice
from hotwirectl.precedence import Settings
from hotwirectl.settings import RESOURCES, Group, checked, pass_settings
from hotwirectl.values import FORMATS, parse_server, parse_timeout

_TITLES = ("NAME", "IN-USE", "SERVER", "TIMEOUT", "OUTPUT")
_FILE_KEYS = ("ca", "cert", "key", "token_file")
_PEM = click.Path(dir_okay=False, path_type=Path, resolve_path=True)


@click.group("context", cls=Group)
def context() -> None:
    """List, show or set contexts: daemons and how to speak to them.

    They are kept in $HOTWIRE_CONFIG, else in hotwire/config.toml in $XDG_CONFIG_HOME or ~/.config.
    What a context says is overruled by the environment, and that by flags.
    """


@context.command("list", formats=RESOURCES, example="hotwirectl context list -o wide")
@pass_settings
def list_command(settings: Settings) -> None:
    """List all contexts, by name."""
    config = file.load()
    known = sorted(config.contexts.values(), key=lambda c: c.name)
    settings.printer().result(
        {
            "path": str(config.path or ""),
            "current": config.current,
            "contexts": [_form(c) for c in known],
        },
        lambda: _table(config, known, wide=False),
        wide=lambda: _table(config, known, wide=True),
        names=[f"context/{c.name}" for c in known],
    )


@context.command("show", formats=RESOURCES, example="hotwirectl context show prod")
@context_argument(required=False)
@pass_settings
def show(settings: Settings, name: str | None) -> None:
    """Show the context NAME, or the one in force."""
    found = file.load().context(name) if name else settings.in_force
    if not found.name:
        raise click.UsageError("no context is in use: name one, or see `hotwirectl context use`")
    fields = [("name", found.name), *((k, _shown(found, k)) for k in KEYS)]
    settings.printer().result(
        _form(found), lambda: text.fields(fields), names=[f"context/{found.name}"]
    )


@context.command("use", formats=(), example="hotwirectl context use prod")
@context_argument(required=False)
@click.option("--none", is_flag=True, help="Let no context be in use.")
@pass_settings
def use(settings: Settings, name: str | None, *, none: bool) -> None:
    """Make NAME the context in use."""
    from hotwirectl.config import edit  # tomlkit, which only those who write wait for

    if (name is None) is not none:
        raise click.UsageError("name a context, or give --none")
    edit.use(name)
    what = f"context/{name} is in use" if name else "no context is in use"
    settings.printer().result(
        {"current": name}, lambda: what, names=[f"context/{name}"] if name else []
    )


@context.command(
    "set",
    formats=(),
    global_options=False,
    example="hotwirectl context set prod --server unix:/run/hotwire/hotwired.sock --timeout 30",
)
@context_argument()
@click.option("--server", metavar="ADDRESS", callback=checked(parse_server), help="The daemon.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    callback=checked(parse_timeout),
    help="The seconds a call may take.",
)
@click.option("-o", "--output", type=Choice(FORMATS), help="How to print results and errors.")
@click.option("--ca", type=_PEM, help="The certificates that the daemon's is checked with.")
@click.option("--cert", type=_PEM, help="The client's certificate.")
@click.option("--key", type=_PEM, help="The key of the client's certificate.")
@click.option("--token-file", type=_PEM, help="A file whose content proves who calls.")
@click.option("--unset", multiple=True, type=Choice(KEYS), help="A key to forget.")
@pass_settings
def set_context(settings: Settings, /, name: str, *, unset: Sequence[str], **given: Any) -> None:
    """Set what is named of the context NAME, which is made if there is none.

    Options behind `set` are the context's; those of this run, such as -o, go before `context`.
    """
    from hotwirectl.config import edit

    values = {k: str(v) if isinstance(v, Path) else v for k, v in given.items() if v is not None}
    if not values and not unset:
        raise click.UsageError("there is nothing to set: see the options")
    if both := sorted(values.keys() & set(unset)):
        raise click.UsageError(f"{both[0]} is both set and unset")
    made = edit.set_context(name, values, unset).context(name)
    _report(settings, made, "set")


@context.command("delete", formats=RESOURCES, example="hotwirectl context delete staging")
@context_argument()
@pass_settings
def delete(settings: Settings, name: str) -> None:
    """Delete the context NAME; if it was in use, none is."""
    from hotwirectl.config import edit

    gone = file.load().context(name)
    edit.delete_context(gone.name)
    _report(settings, gone, "deleted")


def _report(settings: Settings, found: Context, verb: str) -> None:
    facts = ", ".join(f"{key} {_shown(found, key)}" for key in found.settings())
    line = text.escaped(f"context/{found.name} {verb}" + (f" ({facts})" if facts else ""))
    settings.printer().result(_form(found), lambda: line, names=[f"context/{found.name}"])


def _form(found: Context) -> dict[str, object]:
    return {"name": found.name, **dict.fromkeys(KEYS), **found.settings()}


def _table(config: Config, known: Sequence[Context], *, wide: bool) -> str:
    if not known:
        return f"no contexts are in {config.path}"
    more = _FILE_KEYS if wide else ()
    titles = (*_TITLES, *(key.upper().replace("_", "-") for key in more))
    return text.columns(
        titles,
        (
            (
                c.name,
                "*" if c.name == config.current else "-",
                *(_shown(c, key) for key in ("server", "timeout", "output", *more)),
            )
            for c in known
        ),
    )


def _shown(found: Context, key: str) -> str:
    value = found.settings().get(key)
    if value is None:
        return "-"
    return text.number(value) if isinstance(value, float) else value
