"""What an operator does to an engine while it serves: sleep, new weights, a cache that is reset."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from hotwired.node.v1 import node_pb2
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.vector_file import canonical_bytes, revision_of
from tests.engine.conftest import ONE_THREAD, Rig, Start
from tests.support import situations
from tests.support.engine_models import TINY_LAYERS, TINY_WIDTH, direction, make_tiny_llama
from tests.support.engine_process import Ask
from tests.support.hf_reference import HfReference
from tests.support.steered_check import ROW, SPECS, Judge, batch, prompt


@pytest.fixture(autouse=True)
def _vectors(wide: Rig) -> None:
    wide.driver.put({"joy": ROW})


@pytest.mark.parametrize("steps", [1, 4, 12], ids=["prefilling", "early", "generating"])
def test_a_prefix_cache_reset_mid_flight(wide: Rig, judge: Judge, steps: int) -> None:
    """Running requests lose all they have and are computed anew, at the same positions."""
    before = wide.engine.call("preemptions")
    wide.engine.call("add", batch(30))
    wide.engine.call("step", steps)
    assert wide.engine.call("run", situations.reset_while_running)
    judge.check_batch(wide.engine.call("finish"))
    assert wide.engine.call("preemptions") > before


@pytest.mark.parametrize("level", [0, 1, 2])
def test_requests_that_sleep_through_a_sleep(wide: Rig, judge: Judge, level: int) -> None:
    """Kept over a sleep of any level they go on as they were, and new ones are steered as before.

    On a CPU the engine pauses, gives up its cache and goes on; the workers keep their memory.
    """
    wide.engine.call("add", batch(30))
    wide.engine.call("step", 6)
    wide.engine.call("run", situations.sleep, level)
    wide.engine.call("step", 3)
    wide.engine.call("run", situations.wake_up, None if level else ["scheduling"])
    judge.check_batch(wide.engine.call("finish"))
    wide.engine.call("add", batch(30))
    judge.check_batch(wide.engine.call("finish"))


def test_a_vector_pushed_to_a_sleeping_engine(wide: Rig, judge: Judge) -> None:
    """What is registered during a sleep is in force from the first request after it."""
    wide.engine.call("run", situations.sleep, 1)
    wide.driver.put({"joy": direction(9, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)})
    wide.driver.put({"joy": ROW})
    wide.engine.call("run", situations.wake_up)
    wide.engine.call("add", batch(30))
    judge.check_batch(wide.engine.call("finish"))


def test_buffers_survive_what_a_level_two_sleep_does_to_them(wide: Rig, judge: Judge) -> None:
    """vLLM copies all buffers of the model out and back in again: ours go with them, unmoved."""
    wide.engine.call("add", batch(30))
    wide.engine.call("step", 6)
    (moved,) = wide.engine.call("on_workers", copy_out_and_in)
    assert moved == 0
    judge.check_batch(wide.engine.call("finish"))


def copy_out_and_in(worker: Any) -> int:
    """Does as Worker.sleep(2) and wake_up do; returns how many buffers of ours have moved."""
    model = worker.model_runner.get_model()
    places = {name: b.data_ptr() for name, b in model.named_buffers() if "hotwired" in name}
    assert len(places) >= TINY_LAYERS
    saved = {name: buffer.cpu().clone() for name, buffer in model.named_buffers()}
    for name, buffer in model.named_buffers():
        buffer.data.copy_(saved[name].data)
    now = dict(model.named_buffers())
    return sum(now[name].data_ptr() != place for name, place in places.items())


@pytest.fixture(scope="module")
def retrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The small model with other weights in its last two blocks."""
    model = make_tiny_llama(tmp_path_factory.mktemp("retrained") / "tiny")
    path = Path(model) / "model.safetensors"
    tensors = load_file(path)
    for name in tensors:
        if ".layers.2." in name or ".layers.3." in name:
            tensors[name] = -tensors[name]
    save_file(tensors, path, metadata={"format": "pt"})
    return model


def test_reloaded_weights_are_steered(
    wide: Rig, judge: Judge, retrained: str, spoken_model: str
) -> None:
    """After a reload in place the new weights are steered; after one back, the old ones."""
    wide.engine.call("run", situations.reload_weights, retrained)
    wide.engine.call("add", batch(30))
    Judge(HfReference(retrained)).check_batch(wide.engine.call("finish"))
    wide.engine.call("run", situations.reload_weights, spoken_model)
    wide.engine.call("add", batch(30))
    judge.check_batch(wide.engine.call("finish"))


def test_aborted_before_its_first_step(wide: Rig, judge: Judge) -> None:
    """Nothing is left of it; a request of the same name that comes next is its own."""
    wide.engine.call("add", batch(30))
    wide.engine.call("abort", list(map(str, SPECS)))
    assert wide.driver.engine().requests_live == 0
    assert list(wide.driver.engine().revisions_in_use) == []
    wide.engine.call("step", 2)
    assert wide.driver.worker().rows_in_use == 0
    other = {
        "all": Ask(prompt(38, 1), None, tokens=8),
        "None": Ask(prompt(37), SPECS["all"], tokens=8),
    }
    wide.engine.call("add", other)
    answers = wide.engine.call("finish")
    judge.check(answers["all"], None)
    judge.check(answers["None"], "all")


def test_requests_come_run_and_go_while_a_vector_is_being_staged(wide: Rig, judge: Judge) -> None:
    """Bytes that are on their way hold nobody up and steer nobody; then they are in force."""
    late = direction(3, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)
    upload = Upload(wide, canonical_bytes(late))
    wide.driver.vectors["late"] = late
    wide.driver.commit_unstaged()
    asks = batch(30) | {"gone": Ask(prompt(20), SPECS["all"], tokens=60)}
    wide.engine.call("add", asks | {"early": Ask(prompt(20), {"id": "late", "layer": 1}, tokens=8)})
    wide.engine.call("step", 4)
    wide.engine.call("abort", ["gone"])
    answers = wide.engine.call("finish")
    judge.check(answers.pop("early"), None)
    judge.check_batch(answers)
    upload.finish()
    answer = wide.engine.one(Ask(prompt(20), {"id": "late", "layer": 1}, tokens=8))
    Judge(judge.reference, late).check(answer, "all")


class Upload:
    """A vector's bytes on their way to the worker, all but the last of them there."""

    def __init__(self, rig: Rig, data: bytes) -> None:
        self._go_on, self._data = threading.Event(), data
        self._under_way = threading.Event()
        (self._stub,) = rig.driver.stubs(public_pb2.NODE_ROLE_WORKER)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._under_way.wait(10)

    def finish(self) -> None:
        """Send the rest."""
        self._go_on.set()
        self._thread.join(10)

    def _run(self) -> None:
        self._stub.Stage(self._messages(), timeout=60)

    def _messages(self) -> Iterator[node_pb2.StageRequest]:
        header = node_pb2.StageHeader(revision=revision_of(self._data), size_bytes=len(self._data))
        yield node_pb2.StageRequest(header=header)
        yield node_pb2.StageRequest(chunk=self._data[:-1])
        self._under_way.set()
        assert self._go_on.wait(30)
        yield node_pb2.StageRequest(chunk=self._data[-1:])


@pytest.mark.slow
def test_the_buffers_are_not_of_the_pool_that_a_sleep_discards(
    start: Start, tiny_options: dict[str, Any]
) -> None:
    """The model is armed once vLLM has left its weights' pool, for which a CPU has a stand-in."""
    rig = start(tiny_options, before=watch_the_pool, env=ONE_THREAD)
    (seen,) = rig.engine.call("on_workers", pool_at_arming)
    assert seen == ["entered", "left", "armed"]


_seen: list[str] = []


def watch_the_pool() -> None:
    """Records when vLLM is within its pool for weights and when buffers are made."""
    from contextlib import contextmanager

    import torch
    from vllm.v1.worker.cpu_worker import CPUWorker

    from hotwire_plugin import worker

    @contextmanager
    def pool(self: Any, tag: str) -> Iterator[None]:
        record = [] if tag != "weights" else _seen_here()
        record.append("entered")
        yield
        record.append("left")

    class Role(worker.WorkerRole):
        def __init__(self, *args: Any) -> None:
            _seen_here().append("armed")
            super().__init__(*args)

    CPUWorker._maybe_get_memory_pool_context = pool
    import hotwire_plugin.engine_seam.worker as seam

    assert torch is not None
    seam.WorkerRole = Role


def _seen_here() -> list[str]:
    from tests.engine import test_lifecycle

    return test_lifecycle._seen


def pool_at_arming(worker: Any) -> list[str]:
    """Returns what was recorded."""
    return _seen_here()
