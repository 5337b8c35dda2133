"""Admissions by a small snapshot, for tests of what they decide."""

from collections.abc import Callable

from hotwire_plugin.admission import Admission
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import EnginePolicy, Snapshot, SnapshotHolder, VectorMeta
from hotwired.dose import DoseMode, DosePolicy

JOY, CALM, HUGE, FLAT = "a" * 64, "b" * 64, "c" * 64, "d" * 64
LAYERS = 30
VECTORS = {
    "joy": VectorMeta("joy", JOY, tuple(range(10, 20)), (2.0,) * 10),
    "calm": VectorMeta("calm", CALM, (), (4.0,), any_layer=True),
    "flat": VectorMeta("flat", FLAT, (), (0.0,), any_layer=True),
    "off": VectorMeta("off", JOY, (1,), (2.0,), disabled=True),
    "old": VectorMeta("old", JOY, (1,), (2.0,), expires=1e9),
    "huge": VectorMeta("huge", HUGE, (28, 29, 30), (1e30,) * 3),
}
SHAPE = ModelShape(LAYERS)
REFERENCE = dict.fromkeys(range(LAYERS), 10.0)


def admission(
    armed_reason: Callable[[], str | None] = lambda: None,
    model: ModelShape = SHAPE,
    **policy: object,
) -> Admission:
    """Returns an admission by generation 1 with VECTORS and the policy given."""
    holder = SnapshotHolder(Snapshot(1, VECTORS, EnginePolicy(**policy)))  # type: ignore[arg-type]
    return Admission(holder, model, armed_reason)


def limit(mode: DoseMode = DoseMode.REJECT, per_layer: float = 0.5, **more: object) -> DosePolicy:
    """Returns a dose policy with a reference norm of 10 at every layer."""
    return DosePolicy(mode, per_layer, **{"reference_norms": REFERENCE, **more})  # type: ignore[arg-type]
