"""Two vectors for the small model, and what loads their rows for a reference."""

import torch

from tests.support.engine_models import TINY_LAYERS, TINY_WIDTH, direction
from tests.support.steering_math import loader

VECTORS = {
    name: direction(seed, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)
    for seed, name in enumerate(("joy", "calm"), 1)
}
LOAD = loader(
    {
        (name, layer): torch.from_numpy(vector.rows[layer])
        for name, vector in VECTORS.items()
        for layer in range(TINY_LAYERS)
    }
)
