"""The files that the pages speak of, the same in every run: no random number is in them."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bench.demo import data
from hotwirectl.norms import table
from tests.docs.pages import ROOT
from tests.docs.stand_in import LAYERS

WIDTH = 576
DOSE = 0.12
"""Of every vector at scale 1: its rows' norm over the reference norm of their layer."""

MODEL = ROOT / ".cache" / "models" / "smollm2-135m-instruct"
NORMS = {layer: 20.0 + 3 * layer for layer in range(LAYERS)}
FINGERPRINT = "30x576-0f86a13132d4ae6f"


def write(home: Path) -> None:
    """Writes them all."""
    for number, name in enumerate(("joy", "joy-2", "calm")):
        rows = _rows(7919 + 2 * number, WIDTH)
        save_file({"vector": rows}, home / f"{name}.safetensors", {"model": MODEL.name})
    save_file({"vector": _rows(7919, 512)}, home / "wide.safetensors")
    norms = {layer: table.LayerNorms(mean) for layer, mean in NORMS.items()}
    table.write(table.NormTable(MODEL.name, FINGERPRINT, norms), home / "norms.json")
    (home / "prompts.txt").write_text("\n".join(data.prompts()) + "\n")
    pairs = data.pairs()
    for name, side in (("positive", 0), ("negative", 1)):
        (home / f"{name}.txt").write_text("\n".join(pair[side] for pair in pairs) + "\n")
    (home / ".cache").symlink_to(ROOT / ".cache")
    (home / "bench").symlink_to(ROOT / "bench")
    (home / "models").symlink_to(ROOT / ".cache" / "models")


def write_pickled(home: Path) -> None:
    """Writes vectors/old_joy.pt, as hotwire-vllm has them."""
    import torch

    (home / "vectors").mkdir()
    torch.save(torch.from_numpy(_rows(7919, WIDTH)), home / "vectors" / "old_joy.pt")


def write_bare_norms(home: Path) -> None:
    """Writes h_norms.json, as hotwire-vllm reads it."""
    (home / "h_norms.json").write_text(json.dumps(NORMS))


def _rows(step: int, width: int) -> np.ndarray:
    """Rows of a fixed pattern, so that revisions are the same on every machine."""
    places = np.arange(LAYERS * width).reshape(LAYERS, width)
    pattern = (places * step % 1000 - 500) / 500
    norms = np.array([[DOSE * norm] for norm in NORMS.values()])
    return (pattern * norms / (width / 3) ** 0.5).astype(np.float32)
