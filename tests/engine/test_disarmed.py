"""A model that cannot be steered is served unsteered, and everybody is told why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.conftest import ONE_THREAD, Rig, Start
from tests.support.engine_models import TINY_WIDTH, direction
from tests.support.engine_process import Ask, EngineError

PROMPT = (5, 6, 7, 8)


def change_signature() -> None:
    """Makes Llama's blocks return what nobody knows."""
    from vllm.model_executor.models.llama import LlamaDecoderLayer

    LlamaDecoderLayer.forward.__annotations__["return"] = "dict[str, torch.Tensor]"


@pytest.fixture(scope="module")
def rig(start: Start, tiny_options: dict[str, Any]) -> Rig:
    """An engine whose blocks have a signature that is not known."""
    return start(tiny_options, before=change_signature, env=ONE_THREAD)


def test_the_node_says_why_it_is_disarmed(rig: Rig) -> None:
    """The daemon is told the reason, and so is the log, in one line."""
    (node,) = rig.driver.describe().values()
    assert not node.armed
    assert "dict[str, torch.Tensor]" in node.disarmed_reason
    assert len(rig.engine.log_lines("hotwired is disarmed")) == 1


def test_it_serves_on_unsteered(rig: Rig) -> None:
    """A request that asks for steering runs without, counted as NODE_DISARMED."""
    rig.driver.vectors["joy"] = direction(1, norm=30.0, width=TINY_WIDTH)
    rig.driver.commit_unstaged()
    plain, asked = rig.engine.generate([Ask(PROMPT), Ask(PROMPT, {"id": "joy", "layer": 1})])
    assert (plain.tokens, plain.logprobs) == (asked.tokens, asked.logprobs)
    assert dict(rig.driver.engine().requests_unsteered_total) == {"NODE_DISARMED": 1}


def test_a_strict_request_is_refused(rig: Rig) -> None:
    """With "strict": true the caller is told that this node cannot steer, and why."""
    with pytest.raises(EngineError, match="NODE_DISARMED") as refused:
        rig.engine.one(Ask(PROMPT, {"id": "joy", "layer": 1, "strict": True}))
    assert refused.value.kind == "VLLMValidationError"
    assert "dict[str, torch.Tensor]" in str(refused.value)
