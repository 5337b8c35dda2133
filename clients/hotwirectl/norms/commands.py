"""The commands for tables of norms: norms measure, norms import, norms show."""

from pathlib import Path

import click

from hotwirectl.json_file import read_json
from hotwirectl.layer_bases import BASES
from hotwirectl.near import Choice
from hotwirectl.norms import foreign, plot, prompts, table, view
from hotwirectl.progress import progress
from hotwirectl.settings import Group, Settings, pass_settings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
# Below this a prompt is hardly more than its first tokens' shadow.
_SHORT = 64


@click.group("norms", cls=Group)
def norms() -> None:
    """Measure, convert or show the norms that doses are relative to."""


@norms.command(
    "measure",
    example="hotwirectl norms measure --model DIR --prompts prompts.txt --out norms.json",
)
@click.option("--model", type=_DIRECTORY, required=True, help="The model's directory.")
@click.option(
    "--prompts",
    "file",
    type=_FILE,
    required=True,
    help="Prompts as long as those in deployment: one a line, or parted by blank lines; or .jsonl "
    'with "text".',
)
@click.option("--out", type=_OUT, help="Where to write the table.  [default: it is printed]")
@click.option("--max-tokens", type=click.IntRange(2), help="Cut each prompt there.")
@click.option(
    "--skip-first",
    type=click.IntRange(0),
    help="How many first tokens of a prompt to leave out.  [default: position 0 and those behind "
    "it with massive norms, at most 8]",
)
@pass_settings
def measure_command(
    settings: Settings, /, model: Path, file: Path, *, out: Path | None, **limits: int | None
) -> None:
    """Measure the residual stream of a model.

    The model runs in Hugging Face's eager mode, on a GPU if there is one; the norm is taken after
    each block at every position. Needs torch and transformers: `pip install 'hotwired[norms]'`.
    """
    from hotwirectl.norms.measure import measure  # numpy, which no other command waits for

    given = prompts.read(file)
    with progress(given.texts, "measuring") as texts:
        found = measure(model, given, texts, **limits)
    _report(settings, found, out, "measured")
    if (median := (found.prompts or {})["median"]) < _SHORT:
        settings.printer().note(
            f"the prompts are short (median {median:g} tokens): measure on such as are deployed"
        )


@norms.command(
    "import", example="hotwirectl norms import h_norms.json --layer-base output --out norms.json"
)
@click.argument("file", type=_FILE)
@click.option(
    "--layer-base",
    type=Choice(BASES),
    help="What entry 0 is: the output of block 0, or the embedding, as in transformers' tuple.",
)
@click.option("--model", type=_DIRECTORY, help="The model's directory; its config.json is read.")
@click.option("--out", type=_OUT, help="Where to write the table.  [default: it is printed]")
@pass_settings
def import_command(
    settings: Settings, file: Path, layer_base: str | None, model: Path | None, out: Path | None
) -> None:
    """Convert the table in FILE.

    FILE is what hidden-directions' `measure-h-norms` writes, or what hotwire-vllm reads as
    HOTWIRE_H_NORMS. What is assumed of it is said.
    """
    mark = table.fingerprint_of(model) if model else None
    name = model.resolve().name if model else ""
    try:
        made = foreign.convert(read_json(file), base=layer_base, mark=mark, model=name)
    except foreign.BaseUnknownError as error:
        raise click.UsageError(f"{file}: {error}; say so with --layer-base") from error
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}") from error
    _report(settings, made.table, out, "imported")
    for sentence in made.assumed:
        settings.printer().note(sentence)


@norms.command("show", example="hotwirectl norms show norms.json --png norms.png")
@click.argument("file", type=_FILE, required=False)
@click.option("--png", type=_OUT, help="Write a plot there too.")
@pass_settings
def show(settings: Settings, file: Path | None, png: Path | None) -> None:
    """Show the table in FILE, or that of the policy.

    Needs matplotlib for --png: `pip install 'hotwired[plot]'`.
    """
    found = table.read(file) if file else _of_policy(settings)
    if png:
        plot.write(found, png)
    settings.printer().result(found.form(), lambda: view.table(found))


def _of_policy(settings: Settings) -> table.NormTable:
    with settings.client() as client:
        policy = client.get_policy().policy
    if not policy.reference_norms:
        raise click.UsageError("the policy has no reference norms; name a FILE")
    layers = {
        n: table.LayerNorms(policy.reference_norms[n]) for n in sorted(policy.reference_norms)
    }
    mark = policy.reference_norms_fingerprint or None
    return table.NormTable("", mark, layers, source={"tool": "the policy in force"})


def _report(settings: Settings, found: table.NormTable, out: Path | None, verb: str) -> None:
    if out is None:
        settings.printer().result(found.form(), lambda: view.table(found))
        return
    table.write(found, out)
    settings.printer().result(found.form(), lambda: f"{view.line(found, verb)} to {out}")
