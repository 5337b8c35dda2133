"""Real engines, each started once and shared by the tests that can live with it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_models import make_tiny_llama, smollm2
from tests.support.engine_process import Engine
from tests.support.hf_reference import HfReference
from tests.support.node_driver import NodeDriver
from tests.support.steered_check import Judge
from tests.support.tiny_extras import RANK, add_tokenizer

BLOCK = 32
"""The tokens of a key-value block: the fewest that the CPU's attention can do with."""

START_S = 600
"""How long an engine may take to start: on two cores, the first compilation is slow."""


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""For a model so small that threads only wait for each other."""


@dataclass
class Rig:
    """An engine, and the stand-in for its daemon."""

    engine: Engine
    driver: NodeDriver


Start = Callable[..., Rig]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test comes first waits for its engine."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(START_S + 120))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a small random-weight Llama without a tokenizer."""
    return make_tiny_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_options(tiny_model: str) -> dict[str, Any]:
    """What vllm.LLM needs for the small model, in eager mode."""
    return {
        "model": tiny_model,
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "max_model_len": 160,
        "max_num_seqs": 8,
        "block_size": BLOCK,
        "enforce_eager": True,
    }


@pytest.fixture(scope="session")
def spoken_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the same model with a tokenizer."""
    model = make_tiny_llama(tmp_path_factory.mktemp("models") / "spoken")
    add_tokenizer(model)
    return model


@pytest.fixture(scope="session")
def tiny_reference(tiny_model: str) -> HfReference:
    """The small model, in Hugging Face's eager form."""
    return HfReference(tiny_model)


@pytest.fixture(scope="session")
def judge(tiny_reference: HfReference) -> Judge:
    """Compares answers of the small model with the reference's."""
    return Judge(tiny_reference)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts engines; they are killed at the end of the session, if not before."""
    rigs: list[Rig] = []
    folders: list[Path] = []

    def start_one(options: dict[str, Any], **more: Any) -> Rig:
        folders.append(Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp")))
        log = tmp_path_factory.mktemp("engine") / "log"
        engine = Engine(options, run_dir=folders[-1], log=log, timeout_s=START_S, **more)
        rigs.append(Rig(engine, NodeDriver(folders[-1])))
        return rigs[-1]

    yield start_one
    for rig in rigs:
        rig.driver.close()
        rig.engine.kill()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def main_rig(start: Start) -> Rig:
    """SmolLM2 in fp32, compiled, with prefix caching and a worker process of its own."""
    options = {
        "model": smollm2(),
        "dtype": "float32",
        "max_model_len": 512,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "block_size": BLOCK,
        "distributed_executor_backend": "mp",
    }
    return start(options)


@pytest.fixture
def main(main_rig: Rig) -> Iterator[Rig]:
    """The main engine with no vector, no policy and an empty prefix cache."""
    yield from _cleared(main_rig)


@pytest.fixture(scope="session")
def tight_rig(start: Start, tiny_options: dict[str, Any]) -> Rig:
    """The small model, all in one process, with 32 tokens a step and 6 blocks of cache."""
    tight = {"max_num_batched_tokens": 32, "num_gpu_blocks_override": 7}
    return start(tiny_options | tight, env=ONE_THREAD)


@pytest.fixture
def tight(tight_rig: Rig) -> Iterator[Rig]:
    """The small engine with no vector, no policy and an empty prefix cache."""
    yield from _cleared(tight_rig)


@pytest.fixture(scope="session")
def wide_rig(start: Start, tiny_options: dict[str, Any], spoken_model: str) -> Rig:
    """The small model with a tokenizer and all that a request may ask for switched on."""
    wide = {
        "model": spoken_model,
        "skip_tokenizer_init": False,
        "enable_lora": True,
        "max_lora_rank": 2 * RANK,
        "enable_prompt_embeds": True,
        "max_num_batched_tokens": 48,
    }
    return start(tiny_options | wide, env=ONE_THREAD)


@pytest.fixture
def wide(wide_rig: Rig) -> Iterator[Rig]:
    """That engine with no vector, no policy and an empty prefix cache."""
    yield from _cleared(wide_rig)


def _cleared(rig: Rig) -> Iterator[Rig]:
    rig.driver.vectors.clear()
    rig.driver.set_policy()
    rig.engine.call("reset_prefix_cache")
    yield rig
    rig.engine.call("finish")
