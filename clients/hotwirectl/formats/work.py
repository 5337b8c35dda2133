"""What the commands for files of vectors do: the part that needs numpy."""

from collections.abc import Mapping
from pathlib import Path

from hotwirectl import failures, policy_input, views
from hotwirectl import text as texts
from hotwirectl.formats import comparison, inspection, read, sources, write
from hotwirectl.formats.layer_base import Vector, settled
from hotwirectl.formats.options import quietly, say_assumed
from hotwirectl.formats.raw import RawVector
from hotwirectl.formats.told import Told
from hotwirectl.settings import Settings

_UNKNOWN = ("LAYER_BASE_UNKNOWN", "NUM_LAYERS_UNKNOWN")


def convert(settings: Settings, file: Path, out: Path, told: Told) -> None:
    """Writes a file's vector, and says what was assumed of it."""
    found = settled(read.read_one(file), told)
    data = write.encoded(found, write.metadata_of(found))
    say_assumed(settings, found.name, found.assumed)
    _written(settings, found, data, out, "converted")


def export(settings: Settings, name: str, revision: str, out: Path) -> None:
    """Writes a registered vector."""
    found = sources.registered(settings, name, revision)
    model = {"model": found.model} if found.model else {}
    data = write.encoded(found.vector, found.vector.data.metadata | model)
    _written(settings, found.vector, data, out, "exported")


def inspect(settings: Settings, what: str, norms: Path | None, told: Told) -> None:
    """Prints what can be said of FILE|NAME at a look."""
    is_file = sources.is_file(what)
    reference = _reference(settings, norms)
    if not is_file:
        vector = sources.registered(settings, what).vector
        _show(settings, inspection.of_vector(vector, reference))
        return
    found = [_inspected(raw, told, reference) for raw in read.read_all(Path(what))]
    if len(found) == 1:
        _show(settings, found[0])
        return
    forms = {"vectors": [each.form() for each in found]}
    settings.printer().result(forms, lambda: inspection.listed(found))


def diff(settings: Settings, a: str, b: str, told: Told) -> None:
    """Prints how two vectors differ."""
    pair = [sources.vector(settings, what, told) for what in (a, b)]
    for each in pair:
        say_assumed(settings, each.name, each.assumed)
    found = comparison.compare(*pair)
    settings.printer().result(found.form(), lambda: comparison.shown(found))


def _written(settings: Settings, vector: Vector, data: bytes, out: Path, verb: str) -> None:
    write.save(data, out)
    found = inspection.of_vector(vector, {})
    facts = [
        f"layers {texts.layers(vector.data.layers) or 'any'}",
        f"width {found.width}",
        f"revision {views.short(found.revision or '')}",
    ]
    line = texts.escaped(f"vector/{vector.name} {verb} ({', '.join(facts)}) to {out}")
    settings.printer().result(found.form() | {"file": str(out)}, lambda: line)


def _show(settings: Settings, found: inspection.Inspection) -> None:
    say_assumed(settings, found.name, found.assumed)
    settings.printer().result(found.form(), lambda: inspection.shown(found))


def _inspected(raw: RawVector, told: Told, reference: Mapping[int, float]) -> inspection.Inspection:
    try:
        return inspection.of_vector(settled(raw, told), reference)
    except failures.CommandFailedError as error:
        if error.failure.reason not in _UNKNOWN:
            raise
        return inspection.of_raw(raw, error.failure.message.removeprefix(f"{raw.name}: "))


def _reference(settings: Settings, norms: Path | None) -> dict[int, float]:
    """Returns the residual stream's norm by layer; empty if nobody knows it."""
    if norms is not None:
        found = policy_input.read_reference(norms)["reference_norms"]
        return {int(layer): float(norm) for layer, norm in found.items()}
    answer = quietly(settings, lambda client: client.get_policy())
    return dict(answer.policy.reference_norms) if answer is not None else {}
