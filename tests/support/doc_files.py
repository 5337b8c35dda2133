"""The files that docs/vector-formats.md speaks of, and a daemon for the model that they are for."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from hotwire_client import Client, NodeState, Policy
from tests.daemon.harness import eventually
from tests.fakes.fake_daemon import RealDaemon, real_daemon
from tests.fakes.fake_node import FakeNode, FakeServer
from tests.support.engine_models import LAYERS, WIDTH
from tests.support.vector_files import write_gguf, write_pt

MODEL = "smollm2-135m-instruct"


class _Runs:
    """What a pickle that runs something holds."""

    def __reduce__(self) -> Any:
        import os

        return os.system, ("touch it-ran",)


def write_files(folder: Path) -> None:
    """Writes them all; the same ones every time."""
    import torch

    rows = _rows(1)
    save_file({"vector": rows}, folder / "joy.safetensors", {"model": MODEL})
    write_pt(folder / "brevity.pt", torch.from_numpy(_rows(2)).bfloat16())
    write_pt(folder / "sarcasm.pt", torch.from_numpy(np.vstack([_rows(3)[:1] / 9, _rows(3)])))
    write_pt(folder / "evil.pt", {"vector": torch.ones(LAYERS, WIDTH), "config": _Runs()})
    write_gguf(folder / "glee.gguf", {f"direction.{n}": rows[n] for n in range(1, LAYERS)})
    np.savez(folder / "calm.npz", vector=_rows(4)[10:13], layers=np.array([10, 11, 12]))
    _directions(folder / "directions")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[RealDaemon]:
    """Runs a daemon with the three nodes of one engine, and with reference norms in its policy."""
    roles = ("engine", "frontend", "worker")
    nodes = folder / "run" / "nodes" / "7f3a9"
    with real_daemon(folder) as daemon, contextlib.ExitStack() as running:
        for role in roles:
            shape = {"hidden_size": WIDTH, "num_layers": LAYERS, "model": MODEL}
            node = FakeNode(instance_id="7f3a9", roles=(role,), **shape)  # type: ignore[arg-type]
            server = FakeServer(node, nodes / f"{role}-0-0-0.sock")
            server.start()
            running.callback(server.stop)
        with Client(daemon.address) as client:
            eventually(lambda: _converged(client, len(roles)))
            norms = {layer: 20.0 + 3 * layer for layer in range(LAYERS)}
            client.set_policy(Policy(reference_norms=norms), fields=["reference_norms"])
        yield daemon


def _converged(client: Client, count: int) -> bool:
    states = [node.state for node in client.list_nodes().nodes]
    return states == [NodeState.NODE_STATE_CONVERGED] * count


def _rows(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns rows that grow with the layer, in steps that bf16 holds."""
    random = np.random.default_rng(seed).integers(-3, 4, (LAYERS, WIDTH))
    return (random * (1 + np.arange(LAYERS))[:, None] / 256).astype(np.float32)


def _directions(folder: Path) -> None:
    import torch

    folder.mkdir()
    listed = []
    for seed, name in enumerate(("v_inst", "v_refusal"), 5):
        entry = {"name": name, "shape": [LAYERS, WIDTH], "dtype": "torch.bfloat16"}
        listed.append(entry | {"recommended_layer": 17, "recommended_alpha": 1.5})
        write_pt(folder / f"{name}.pt", torch.from_numpy(_rows(seed)).bfloat16())
    form = {"model": MODEL, "directions": listed}
    (folder / "manifest.json").write_text(json.dumps(form, indent=1))
