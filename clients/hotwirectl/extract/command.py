"""The command that makes a vector: extract."""

from pathlib import Path
from typing import Any

import click

from hotwirectl.extract.how import LAST, MEAN, METHODS, POSITIONS, How
from hotwirectl.formats import suffixes
from hotwirectl.near import Choice
from hotwirectl.norms import prompts
from hotwirectl.settings import Command, Settings, checked, pass_settings
from hotwirectl.terms import parse_layers

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(
    "extract",
    cls=Command,
    example="hotwirectl extract --model DIR --positive glad.txt --negative sad.txt",
)
@click.option("--model", type=_DIRECTORY, required=True, help="The model's directory.")
@click.option("--positive", type=_FILE, required=True, help="Prompts that have what is wanted.")
@click.option("--negative", type=_FILE, required=True, help="Prompts that have the opposite.")
@click.option(
    "--method",
    type=Choice(METHODS),
    default=MEAN,
    show_default=True,
    help="The difference of the means, or of pairs the first principal component.",
)
@click.option(
    "--position",
    type=Choice(POSITIONS),
    default=LAST,
    show_default=True,
    help="Where a prompt is read: at its last token, or all but its first, averaged.",
)
@click.option(
    "--layers", callback=checked(parse_layers), help="Such as 10-20,24.  [default: all of them]"
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.  [default: POSITIVE's name with .safetensors, here]",
)
@pass_settings
def extract(
    settings: Settings,
    /,
    model: Path,
    positive: Path,
    negative: Path,
    *,
    out: Path | None,
    **how: Any,
) -> None:
    """Make a vector from prompts that contrast.

    Both files have one prompt a line, or prompts parted by blank lines; the first of one goes with
    the first of the other, and so on. The model runs in Hugging Face's eager mode, on a GPU if
    there is one; the residual stream is read behind each block. Needs torch and transformers: `pip
    install 'hotwired[norms]'`.
    """
    from hotwirectl.extract.run import run

    target = out or Path(f"{positive.stem}.safetensors")
    suffixes.check_out(target)
    run(settings, model, (prompts.read(positive), prompts.read(negative)), How(**how), target)
