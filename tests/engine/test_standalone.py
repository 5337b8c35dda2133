"""Without a daemon: vectors and limits from the environment; and caches without the plugin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from hotwired.rpc_errors import from_rpc_error
from tests.engine.conftest import Rig, Start
from tests.support.engine_models import TINY_LAYERS, TINY_WIDTH, direction
from tests.support.engine_process import Ask, EngineError

PROMPT = (5, 6, 7, 8)
NORM, REFERENCE, LIMIT = 30.0, 60.0, 0.8
"""The vector's norm, that of the residual stream, and the limit: scale 1 is a dose of 0.5."""


@pytest.fixture(scope="module")
def rig(
    start: Start, tiny_options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Rig:
    """A compiled engine with the plugin, on the caches of the same engine without it."""
    folder = tmp_path_factory.mktemp("standalone")
    caches = {
        "VLLM_CACHE_ROOT": str(folder / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    compiled = tiny_options | {"enforce_eager": False}
    bare = start(compiled, env=caches | {"VLLM_PLUGINS": "none"})
    bare.engine.one(Ask(PROMPT))
    assert bare.driver.describe() == {}
    bare.engine.kill()
    return start(compiled, env=caches | settings(folder))


def settings(folder: Path) -> dict[str, str]:
    """Writes vectors and a norms table as hotwire-vllm reads them; returns the variables."""
    vectors = folder / "vectors"
    vectors.mkdir()
    rows = torch.from_numpy(direction(1, range(TINY_LAYERS), norm=NORM, width=TINY_WIDTH).rows)
    torch.save(rows, vectors / "joy.pt")
    torch.save({"direction": rows[1]}, vectors / "one.pt")
    torch.save(rows[:, :7], vectors / "narrow.pt")
    norms = folder / "norms.json"
    norms.write_text(
        json.dumps({"h_norms": {str(layer): REFERENCE for layer in range(TINY_LAYERS)}})
    )
    return {
        "HOTWIRE_VECTORS": str(vectors),
        "HOTWIRE_H_NORMS": str(norms),
        "HOTWIRE_MAX_REL_DOSE": str(LIMIT),
        "HOTWIRE_REL_DOSE_MODE": "clamp",
    }


def test_a_graph_compiled_without_the_plugin_is_not_used_with_it(rig: Rig) -> None:
    """Steering shows although the caches hold the same model's graph without it."""
    plain, steered = rig.engine.generate([Ask(PROMPT), Ask(PROMPT, {"id": "joy", "layer": 1})])
    assert plain.tokens != steered.tokens


def test_vectors_come_from_the_environment(rig: Rig) -> None:
    """A (layers, hidden) file and a (hidden,) one, by their names; the row is the same row."""
    layered, single = rig.engine.generate(
        [Ask(PROMPT, {"id": "joy", "layer": 1}), Ask(PROMPT, {"id": "one", "layer": 1})]
    )
    assert (layered.tokens, layered.logprobs) == (single.tokens, single.logprobs)


def test_a_vector_that_does_not_fit_is_left_out(rig: Rig) -> None:
    """One of another width is logged and not there; the others are."""
    assert len(rig.engine.log_lines("narrow")) == 1
    with pytest.raises(EngineError, match="VECTOR_NOT_FOUND"):
        rig.engine.one(Ask(PROMPT, {"id": "narrow", "layer": 1, "strict": True}))


def test_a_dose_over_the_limit_is_clamped(rig: Rig) -> None:
    """HOTWIRE_MAX_REL_DOSE with "clamp" gives a request over the limit just the limit."""
    at_limit, over, under = rig.engine.generate(
        [
            Ask(PROMPT, {"id": "joy", "layer": 1, "scale": LIMIT * REFERENCE / NORM}),
            Ask(PROMPT, {"id": "joy", "layer": 1, "scale": 50.0}),
            Ask(PROMPT, {"id": "joy", "layer": 1, "scale": 1.0}),
        ]
    )
    assert over.tokens == at_limit.tokens != under.tokens
    assert rig.driver.engine().dose_decisions_total["clamped"] >= 1


def test_a_daemon_finds_a_node_that_takes_nothing(rig: Rig) -> None:
    """The node says that it is standalone at generation 1, and refuses a commit."""
    (node,) = rig.driver.describe().values()
    assert (node.standalone, node.generation, len(node.revisions)) == (True, 1, 2)
    with pytest.raises(grpc.RpcError) as refused:
        rig.driver.commit()
    assert from_rpc_error(refused.value).reason == "NODE_STANDALONE"
