"""The commands `hotwired backup` and `hotwired restore`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from hotwired import backup as backups
from hotwired import restore as restores
from hotwired.archive import Manifest
from hotwired.config import default_state_dir
from hotwired.errors import HotwireError

_state_dir = click.option(
    "--state-dir",
    envvar="HOTWIRED_STATE_DIR",
    type=click.Path(path_type=Path),
    help="Where registry and vectors are kept.  "
    "[default: $XDG_STATE_HOME/hotwired, else ~/.local/state/hotwired]",
)


@click.command()
@click.argument("out", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@_state_dir
def backup(out: Path, state_dir: Path | None) -> None:
    """Write registry and vectors to the tar file OUT, `-` for stdout.

    The daemon may be running: the backup is of one moment, and callers are not held up.
    """
    source = _chosen(state_dir)
    with _ending():
        if out == Path("-"):
            manifest = backups.write(source, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            manifest = backups.to_file(source, out.absolute())
    click.echo(f"backup of {source} written ({_summary(manifest)})", err=True)


@click.command()
@click.argument("file", metavar="IN", type=click.File("rb"))
@_state_dir
def restore(file: BinaryIO, state_dir: Path | None) -> None:
    """Restore the backup IN, `-` for stdin, to an empty state directory.

    Every byte is checked before anything is put in place.
    """
    target = _chosen(state_dir)
    with _ending():
        manifest = restores.restore(file, target)
    click.echo(f"{target} restored ({_summary(manifest)})", err=True)


def _chosen(state_dir: Path | None) -> Path:
    return (state_dir or default_state_dir()).absolute()


@contextmanager
def _ending() -> Iterator[None]:
    """Ends the process with 1 and one line if what is within fails."""
    try:
        yield
    except HotwireError as exc:
        click.echo(f"hotwired: {exc.reason}: {exc.message}", err=True)
        sys.exit(1)
    except OSError as exc:
        click.echo(f"hotwired: {exc}", err=True)
        sys.exit(1)


def _summary(manifest: Manifest) -> str:
    size = manifest.registry_bytes + sum(manifest.blobs.values())
    return f"generation {manifest.generation}, {len(manifest.blobs)} blobs, {size} bytes"
