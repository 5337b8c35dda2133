"""The commands for files of vectors: convert, inspect, export, diff."""

from pathlib import Path

import click

from hotwirectl.formats import suffixes
from hotwirectl.formats.options import layer_options, told
from hotwirectl.settings import Command, Settings, pass_settings

# Each command imports what it does only when it runs: no other waits for numpy.

_SOURCE = click.Path(exists=True, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path)


@click.command("convert", cls=Command, example="hotwirectl convert joy.gguf joy.safetensors")
@click.argument("file", type=_SOURCE)
@click.argument("out", type=_OUT)
@layer_options
@pass_settings
def convert(
    settings: Settings, file: Path, out: Path, layer_base: str | None, num_layers: int | None
) -> None:
    """Convert the vector in FILE to OUT.safetensors.

    FILE is a .safetensors, .pt, .gguf or .npz file, or a directory of one direction with a
    manifest.json. What is assumed of it is said, and kept in the metadata. The daemon is asked at
    most how many layers its model has. Needs torch for a .pt: `pip install 'hotwired[convert]'`.
    """
    from hotwirectl.formats import work

    suffixes.check_out(out)
    work.convert(settings, file, out, told(settings, layer_base, num_layers))


@click.command("export", cls=Command, example="hotwirectl export joy joy.safetensors")
@click.argument("name")
@click.argument("out", type=_OUT)
@click.option("--revision", default="", help="That of its canary, given whole.")
@pass_settings
def export(settings: Settings, name: str, out: Path, revision: str) -> None:
    """Write the registered vector NAME to OUT.safetensors.

    Registered again, anywhere, the file has the same revision.
    """
    from hotwirectl.formats import work

    suffixes.check_out(out)
    work.export(settings, name, revision, out)


@click.command("inspect", cls=Command, example="hotwirectl inspect joy.safetensors")
@click.argument("what", metavar="FILE|NAME")
@click.option(
    "--reference-norms",
    "norms",
    type=_FILE,
    help="The norms that doses are relative to.  [default: those of the policy in force]",
)
@layer_options
@pass_settings
def inspect(
    settings: Settings,
    what: str,
    *,
    norms: Path | None,
    layer_base: str | None,
    num_layers: int | None,
) -> None:
    """Show the layers, norms, metadata, digest and dose of a vector.

    It is that of a FILE, of a directory with a manifest.json, or the registered one called NAME.
    Where nothing says which layers a file's rows are for, it is shown by row.
    """
    from hotwirectl.formats import work

    work.inspect(settings, what, norms, told(settings, layer_base, num_layers))


@click.command("diff", cls=Command, example="hotwirectl diff joy.safetensors joy")
@click.argument("a", metavar="FILE|NAME")
@click.argument("b", metavar="FILE|NAME")
@layer_options
@pass_settings
def diff(
    settings: Settings, a: str, b: str, layer_base: str | None, num_layers: int | None
) -> None:
    """Compare two vectors, layer by layer: cosine, and the second's norm over the first's.

    Each is a file or the name of a registered vector.
    """
    from hotwirectl.formats import work

    work.diff(settings, a, b, told(settings, layer_base, num_layers))
