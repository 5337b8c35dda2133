"""What the demo runs with: places, and the layer and scales that `bench.demo.choose` measured."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
VECTOR = "joy"
MODEL_NAME = "smollm2-135m-instruct"

LAYER = 16
SHOWN_SCALE = 1.6
MARGIN_SCALES = (-1.6, -1.2, -0.8, -0.4, 0.0, 0.4, 0.8, 1.2, 1.6)

MAX_MODEL_LEN = 1024
# Of the texts that people are to read, and of those that are only compared.
TEXT_TOKENS = 48
COMPARED_TOKENS = 24
# Greedy texts of a model this small run in circles, steered or not.
REPETITION_PENALTY = 1.15


@dataclass(frozen=True, slots=True)
class Places:
    """Where the demo keeps its files.

    out: what a run leaves (report, logs, vector, the daemon's state). model: the model's directory.
    cache: what makes the next run quick. run_dir: the sockets, in a path short enough for them.
    """

    out: Path
    model: Path
    cache: Path
    run_dir: Path

    @property
    def vector(self) -> Path:
        """The contrast vector."""
        return self.out / f"{VECTOR}.safetensors"

    @property
    def opposite(self) -> Path:
        """The same vector, negated."""
        return self.out / "opposite.safetensors"

    @property
    def norms(self) -> Path:
        """The residual stream's norm by layer, JSON."""
        return self.out / "norms.json"


def places(run_dir: Path) -> Places:
    """The places of this checkout, with sockets in `run_dir`."""
    cache = ROOT / ".cache"
    return Places(ROOT / ".demo", cache / "models" / MODEL_NAME, cache, run_dir)
