"""Makes the demo's vector: the mean difference between joyful and gloomy sentences, by layer.

    python -m bench.demo.contrast MODEL_DIRECTORY OUT_DIRECTORY

Writes joy.safetensors (one tensor `vector`, [layers, hidden] F32, row i for the output of block i),
opposite.safetensors (the same, negated), and norms.json (the mean L2 norm of the residual stream
after each block, for the dose policy).
"""

import json
import sys
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from bench.demo import data
from bench.demo.reference import Reference
from bench.demo.settings import MODEL_NAME

Pooling = Literal["last", "mean"]
# `bench.demo.choose` measures both: see the README.
POOLING: Pooling = "mean"


def difference(reference: Reference, pooling: Pooling = POOLING) -> Tensor:
    """The mean of (joyful - gloomy) over the pairs, [layers, hidden] fp32."""
    rows = [
        _pool(reference.residuals(joyful), pooling) - _pool(reference.residuals(gloomy), pooling)
        for joyful, gloomy in data.pairs()
    ]
    return torch.stack(rows).mean(0)


def norms(reference: Reference) -> list[float]:
    """The mean L2 norm of the residual stream after each block, in texts of ~130 tokens.

    The first token is left out: it is an attention sink, its norm many times any other's.
    """
    sentences = [sentence for pair in data.pairs() for sentence in pair]
    texts = [" ".join(sentences[i::8]) for i in range(8)]
    found = [reference.residuals(text)[:, 1:].norm(dim=-1).mean(1) for text in texts]
    return [round(value, 3) for value in torch.stack(found).mean(0).tolist()]


def write(reference: Reference, out: Path) -> None:
    """Writes the files to `out`, which is made if need be."""
    out.mkdir(parents=True, exist_ok=True)
    vector = difference(reference)
    for name, rows in (("joy", vector), ("opposite", -vector)):
        metadata = {"model": MODEL_NAME, "description": f"{name}: {POOLING} over tokens"}
        save_file({"vector": rows.contiguous()}, out / f"{name}.safetensors", metadata=metadata)
    (out / "norms.json").write_text(json.dumps(dict(enumerate(norms(reference))), indent=1))


def _pool(residuals: Tensor, pooling: Pooling) -> Tensor:
    return residuals[:, -1] if pooling == "last" else residuals[:, 1:].mean(1)


if __name__ == "__main__":
    write(Reference(Path(sys.argv[1])), Path(sys.argv[2]))
