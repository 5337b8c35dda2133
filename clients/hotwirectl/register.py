"""The command that registers vectors, from any file that they come in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from hotwire_client import Client, HotwireError, RegisterVectorResponse
from hotwirectl import changes, failures, views
from hotwirectl.formats import suffixes
from hotwirectl.formats.options import layer_options, say_assumed, told_or_asked
from hotwirectl.formats.told import Told
from hotwirectl.settings import RESOURCES, Command, Settings, checked, pass_settings
from hotwirectl.terms import canary_option, parse_ttl, ttl_option
from hotwirectl.values import MAX_TIMEOUT

_WAIT = "60s"
# The daemon answers once a tenth of a call's time is left.
_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A vector to send: its name, its file or the bytes made of that, and what was assumed."""

    name: str
    source: Path | bytes
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Terms:
    """What is said of all the vectors of a command."""

    model: str
    ttl: float | None
    canary: float | None
    dry_run: bool


class _Register(Command):
    """Takes --wait without a value, which click would take from the word behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Gives a bare --wait its value."""
        end = args.index("--") if "--" in args else len(args)
        filled = [f"--wait={_WAIT}" if a == "--wait" else a for a in args[:end]]
        return super().parse_args(ctx, filled + args[end:])


@click.command(
    "register",
    cls=_Register,
    formats=RESOURCES,
    example="hotwirectl register joy.safetensors --ttl 24h",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--name", help="The vector's name.  [default: the file's name up to its suffix]")
@click.option("--model", default="", help="The model it was made for: only its engines get it.")
@ttl_option(
    help="When the name expires, such as 24h or 1d12h from now.  [default: it keeps its own]"
)
@canary_option(help="Make FILE the canary of NAME, which so many of the requests get.")
@layer_options
@click.option("--dry-run", is_flag=True, help="Check everything, on the nodes too; change nothing.")
@click.option(
    "--wait",
    metavar="[=TIME]",
    callback=checked(parse_ttl),
    help=f"How long to wait for every node, such as 5m; {_WAIT} if no time is given.  [default: "
    "what --timeout leaves]",
)
@pass_settings
def register(
    settings: Settings,
    files: tuple[str, ...],
    name: str | None,
    model: str,
    *,
    ttl: float | None,
    canary: float | None,
    layer_base: str | None,
    num_layers: int | None,
    dry_run: bool,
    wait: float | None,
) -> None:
    """Register the vectors in FILEs.

    FILE is a .safetensors file with one tensor [layers, hidden], or a tensor `layers.N` for each
    layer; a .pt, .gguf or .npz file; or a directory of .pt files with a manifest.json. The others
    are converted here, and what is assumed of them is said. A name that is registered already is
    pointed to the new vector; requests under way keep the one they have. With --canary it stays as
    it is, but for a share of new requests. The command ends once every node uses them.
    """
    asked = told_or_asked(settings, layer_base, num_layers, model)
    prepared = _prepared([Path(file) for file in files], name, asked)
    terms = _Terms(model, ttl, canary, dry_run)
    with settings.client(timeout=_timeout(settings, wait)) as client:
        _register_all(settings, client, prepared, terms)


def _timeout(settings: Settings, wait: float | None) -> float:
    """Returns the seconds of a call that waits so long for the nodes."""
    return settings.seconds() if wait is None else min(wait / _SHARE, MAX_TIMEOUT)


def _prepared(files: Sequence[Path], name: str | None, asked: Told) -> list[_Prepared]:
    """Reads all files before anything is sent, so that one which is refused changes nothing."""
    for file in files:
        suffixes.check(file)
    found = [each for file in files for each in _of_path(file, asked)]
    if name is not None:
        if len(found) != 1:
            raise click.UsageError(f"--name is for one vector, and there are {len(found)}")
        return [_Prepared(name, found[0].source, found[0].assumed)]
    names = [each.name for each in found]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise click.UsageError(f"two of the files are called {twice[0]}: register one with --name")
    return found


def _of_path(file: Path, asked: Told) -> Iterator[_Prepared]:
    if _is_sent_as_is(file, asked):
        yield _Prepared(file.stem, file)
        return
    # Numpy, for which nobody waits who sends a file as it is.
    from hotwirectl.formats import read, write
    from hotwirectl.formats.layer_base import settled

    for raw in read.read_all(file):
        vector = settled(raw, asked)
        data = write.encoded(vector, write.metadata_of(vector))
        yield _Prepared(vector.name, data, vector.assumed)


def _is_sent_as_is(file: Path, asked: Told) -> bool:
    """Whether the daemon itself reads the file, and the user says nothing of its layers."""
    is_own = file.suffix.lower() == suffixes.SAFETENSORS and file.is_file()
    return is_own and asked.base is None and asked.num_layers is None


def _register_all(
    settings: Settings, client: Client, prepared: Sequence[_Prepared], terms: _Terms
) -> None:
    late: list[failures.CommandFailedError] = []
    done: list[str] = []
    for each in prepared:
        say_assumed(settings, each.name, each.assumed)
        try:
            response = _sent(client, each, terms)
        except HotwireError:
            if len(prepared) > 1:
                before = ", ".join(done) or "none"
                settings.printer().note(f"{each.name} was refused; registered before it: {before}")
            raise
        done.append(each.name)
        try:
            _report(settings, response, terms, one_of_many=len(prepared) > 1)
        except failures.CommandFailedError as error:
            late.append(error)
    if late:
        raise late[-1]


def _sent(client: Client, each: _Prepared, terms: _Terms) -> RegisterVectorResponse:
    return client.register_vector(
        each.source,
        name=each.name,
        model=terms.model,
        ttl=terms.ttl,
        canary_percent=terms.canary,
        validate_only=terms.dry_run,
    )


def _report(
    settings: Settings, response: RegisterVectorResponse, terms: _Terms, *, one_of_many: bool
) -> None:
    vector, verb = response.vector, "unchanged" if response.unchanged else "registered"
    what = f"vector/{vector.name} {'valid' if terms.dry_run else verb}"
    changes.report(
        settings,
        response,
        what,
        revision=vector.revision,
        facts=views.canary_facts(vector) if terms.canary is not None else [],
        dry_run=terms.dry_run,
        one_of_many=one_of_many,
    )
