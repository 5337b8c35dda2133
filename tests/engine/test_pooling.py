"""A model that pools has nothing to steer: it is armed, and serves as without the plugin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.conftest import ONE_THREAD, Rig, Start
from tests.support.engine_models import TINY_LAYERS, TINY_VOCAB, TINY_WIDTH, direction

pytestmark = pytest.mark.slow

PROMPTS = [
    np.random.default_rng(at).integers(3, TINY_VOCAB, 20 + 17 * at).tolist() for at in range(4)
]


def embed(host: Any, prompts: list[list[int]]) -> list[list[float]]:
    """Returns a vector for each prompt."""
    outputs = host.llm.embed([{"prompt_token_ids": p} for p in prompts], use_tqdm=False)
    return [output.outputs.embedding for output in outputs]


def test_embeddings_are_untouched(
    start: Start, tiny_options: dict[str, Any], spoken_model: str
) -> None:
    """With a vector registered, and without the plugin, the same bits come out."""
    pooling = tiny_options | {
        "model": spoken_model,
        "skip_tokenizer_init": False,
        "runner": "pooling",
        "convert": "embed",
    }
    bare = start(pooling, env=ONE_THREAD | {"VLLM_PLUGINS": "none"})
    expected = bare.engine.call("run", embed, PROMPTS)
    bare.engine.kill()
    rig: Rig = start(pooling, env=ONE_THREAD)
    (node,) = rig.driver.describe().values()
    assert (node.armed, node.disarmed_reason) == (True, "")
    rig.driver.put({"joy": direction(1, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)})
    assert rig.engine.call("run", embed, PROMPTS) == expected
    assert rig.driver.engine().requests_total == 0
    assert rig.driver.worker().steered_tokens_total == 0
