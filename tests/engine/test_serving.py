"""`vllm serve` and `hotwired serve` on one host: pushed to, killed and started again."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from hotwire_client import NotFoundError, Receipt
from hotwired.v1.node_pb2 import NODE_STATE_CONVERGED
from hotwired.v1.policy_pb2 import Policy
from tests.engine.conftest import START_S
from tests.support.engine_http import BIN, MODEL_NAME, Reply, World, xargs
from tests.support.engine_models import LAYERS, direction, smollm2
from tests.support.engine_process import environment
from tests.support.node_driver import wait_until

CONVERGE_S = 5.0
"""The promise: after any restart, all is as desired that soon."""

PROMPT = "The weather today is"
JOY = {"id": "joy", "layer": 14}
BAD = {
    "SPEC_NOT_JSON": "{",
    "UNKNOWN_FIELD": '{"id": "joy", "layer": 14, "colour": "red"}',
    "VECTOR_NOT_FOUND": '{"id": "nobody"}',
    "SCALE_NOT_FINITE": '{"id": "joy", "scale": NaN}',
    "LAYER_INVALID": '{"id": "joy", "layer": -1}',
    "SPEC_TOO_LARGE": json.dumps({"id": "j" * (1 << 20)}),
    "SPEC_INVALID": "[" * 8_000 + "]" * 8_000,
}


@dataclass
class Served:
    """A world, and what it answered before there was a daemon."""

    world: World
    plain: Reply
    asked: Reply
    strict: Reply


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """vLLM is started first, and asked; then the daemon, which finds it by itself."""
    root = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    world = World(root, smollm2(), START_S)
    try:
        world.start_vllm()
        plain, asked = world.complete(PROMPT), world.complete(PROMPT, JOY)
        strict = world.complete(PROMPT, {**JOY, "strict": True})
        world.start_daemon()
        wait_until(world.converged, CONVERGE_S, "the daemon finds vLLM")
        yield Served(world, plain, asked, strict)
    finally:
        world.close()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def world(served: Served) -> World:
    """Both processes up, one vector, no policy."""
    world = served.world
    world.client.set_policy(Policy(), timeout=CONVERGE_S)
    assert world.client.register_vector(joy(1), name="joy", timeout=CONVERGE_S).converged
    return world


def joy(seed: int) -> bytes:
    """A vector's file."""
    return save({"joy": direction(seed, range(LAYERS), norm=20.0).rows})


def test_without_a_daemon_vllm_serves(served: Served) -> None:
    """Before any daemon: requests are served, steering is not, and strict requests are refused."""
    assert served.plain.status == served.asked.status == 200
    assert served.asked.text == served.plain.text
    assert served.strict.status == 400
    assert "VECTOR_NOT_FOUND" in served.strict.text


def test_a_registered_vector_steers_the_next_request(world: World) -> None:
    """Once RegisterVector has returned, every process is ready: the next request is steered."""
    plain = world.complete(PROMPT)
    steered = dict.fromkeys((1, 2), "")
    for seed in steered:
        response = world.client.register_vector(joy(seed), name="joy", timeout=CONVERGE_S)
        assert response.converged
        assert {node.state for node in response.nodes} == {NODE_STATE_CONVERGED}
        steered[seed] = world.complete(PROMPT, JOY).text
    assert len({plain.text, *steered.values()}) == 3
    world.client.delete_vector("joy", timeout=CONVERGE_S)
    assert world.complete(PROMPT, JOY).text == plain.text


def test_chat_is_steered_too(world: World) -> None:
    """vllm_xargs reaches the engine from the chat API as well, and for a good strict request."""
    question = "How was your day?"
    assert world.chat(question).text != world.chat(question, JOY).text
    assert world.chat(question, {**JOY, "strict": True}).text == world.chat(question, JOY).text


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_specification_over_http(world: World, reason: str) -> None:
    """It is served unsteered and counted by its reason; by a strict policy it is a 400."""
    before = counts(world)
    served = world.complete(PROMPT, BAD[reason])
    assert (served.status, served.text) == (200, world.complete(PROMPT).text)
    wait_until(lambda: counts(world) != before, CONVERGE_S, "the count")
    assert counts(world) == before | {reason: before.get(reason, 0) + 1}
    world.client.set_policy(Policy(strict=True), timeout=CONVERGE_S)
    refused = world.complete(PROMPT, BAD[reason])
    assert refused.status == 400
    assert reason in refused.text
    assert len(refused.text) < 2000


def test_a_strict_request_over_http(world: World) -> None:
    """With "strict": true in the request alone, a 400 says why, near name included."""
    refused = world.complete(PROMPT, {"id": "jou", "layer": 14, "strict": True})
    assert refused.status == 400
    assert "VECTOR_NOT_FOUND" in refused.text
    assert "joy" in refused.text


def counts(world: World) -> dict[str, int]:
    """The engine's unsteered requests by reason, as the daemon's Stats have them."""
    (engine,) = world.client.stats().engines
    return dict(engine.requests_unsteered_total)


def test_the_kill_switch_from_the_command_line(world: World) -> None:
    """`hotwirectl off` unsteers the next request, `hotwirectl on` steers the one after."""
    steered = world.complete(PROMPT, JOY)
    hotwirectl(world, "off")
    assert world.complete(PROMPT, JOY).text == world.complete(PROMPT).text
    hotwirectl(world, "on")
    assert world.complete(PROMPT, JOY) == steered


def hotwirectl(world: World, *arguments: str) -> str:
    """Runs the command line tool as an operator does; returns what it prints."""
    done = subprocess.run(
        [str(BIN / "hotwirectl"), *arguments],
        env=environment(world.run_dir),
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.stdout


def test_the_receipt_and_the_headers_of_a_steered_request(world: World) -> None:
    """By the response's id: what was done, and to how many tokens; the headers say it in brief."""
    generation = world.client.get_policy().generation
    reply = world.complete(PROMPT, JOY | {"scale": 0.5, "scope": "generated"}, max_tokens=8)
    assert reply.headers == {"outcome": "steered", "generation": str(generation)}
    receipt = ended(world, reply.request_id)
    assert (receipt.outcome, receipt.generation) == ("steered", generation)
    (op,) = receipt.ops
    assert (op.vector, op.layer, op.scale_asked, op.scale_applied) == ("joy", 14, 0.5, 0.5)
    assert op.revision == world.client.get_vector("joy").revision
    # The last of the 8 is sampled, and never read.
    assert (receipt.tokens_steered, receipt.held_back) == (7, False)
    chat = world.chat("How was your day?", JOY)
    assert chat.headers["outcome"] == ended(world, chat.request_id).outcome == "steered"
    assert reply.request_id in hotwirectl(world, "receipt", reply.request_id)


def test_the_receipt_and_the_headers_of_one_that_is_not_steered(world: World) -> None:
    """Both say why; a request that asks for nothing has neither."""
    unsteered = world.complete(PROMPT, {"id": "jou"}, max_tokens=4)
    assert unsteered.headers["outcome"] == "unsteered"
    assert unsteered.headers["reason"] == "VECTOR_NOT_FOUND"
    receipt = ended(world, unsteered.request_id)
    assert (receipt.outcome, receipt.reason) == ("unsteered", "VECTOR_NOT_FOUND")
    assert (list(receipt.ops), receipt.tokens_steered) == ([], 0)
    strict = world.complete(PROMPT, {"id": "jou", "strict": True})
    assert (strict.status, strict.headers["reason"]) == (400, "VECTOR_NOT_FOUND")
    plain = world.complete(PROMPT, max_tokens=4)
    assert plain.headers == {}
    with pytest.raises(NotFoundError):
        world.client.get_receipts(plain.request_id)


def test_receipts_by_a_callers_own_id_one_for_each_choice(world: World) -> None:
    """The X-Request-Id that was sent finds them all; a stream has receipts and no headers."""
    body = {"model": MODEL_NAME, "prompt": [PROMPT, "The"], "max_tokens": 3, "n": 2} | xargs(JOY)
    more = {"x-request-id": "their own.1"}
    answer = world.http.post("/v1/completions", json=body | {"temperature": 1}, headers=more)
    assert answer.json()["id"] == "cmpl-their own.1"
    assert answer.headers["x-hotwire-outcome"] == "steered"
    for request_id in ("their own.1", "cmpl-their own.1"):
        found = world.client.get_receipts(request_id).receipts
        assert len({receipt.request_id for receipt in found}) == len(found) == 4
    more = {"x-request-id": "streamed"}
    body |= {"stream": True, "n": 1, "prompt": PROMPT}
    streamed = world.http.post("/v1/completions", json=body, headers=more)
    assert not [name for name in streamed.headers if name.startswith("x-hotwire")]
    assert ended(world, "streamed").outcome == "steered"


def ended(world: World, request_id: str) -> Receipt:
    """The one receipt of a request, once the engine has let go of it."""
    found: list[Receipt] = []

    def is_finished() -> bool:
        found[:] = world.client.get_receipts(request_id).receipts
        return all(receipt.finished for receipt in found)

    wait_until(is_finished, CONVERGE_S, "the request's end")
    (receipt,) = found
    return receipt


def test_a_client_that_hangs_up_leaves_nothing(world: World) -> None:
    """After a stream is cut no request is live, no row in use and no revision held."""
    world.leave_early(PROMPT, JOY)

    def idle() -> bool:
        (engine,) = world.client.stats().engines
        return engine.requests_live == 0

    wait_until(idle, CONVERGE_S, "the request's end")
    world.complete(PROMPT, max_tokens=2)
    wait_until(lambda: world.client.stats().engines[0].rows_in_use == 0, CONVERGE_S, "the row")


def test_the_daemon_killed_and_started_again(world: World) -> None:
    """vLLM steers on by the last snapshot; the registry is intact; nodes converge in 5 s."""
    steered = world.complete(PROMPT, JOY)
    vectors = world.client.list_vectors()
    generation = world.client.get_policy().generation
    world.daemon.kill()
    assert world.complete(PROMPT, JOY) == steered
    world.start_daemon()
    wait_until(world.converged, CONVERGE_S, "the daemon is back")
    assert world.client.list_vectors() == vectors
    assert world.client.get_policy().generation == generation
    assert world.complete(PROMPT, JOY) == steered
    assert world.client.register_vector(joy(2), name="joy", timeout=CONVERGE_S).converged
    assert world.complete(PROMPT, JOY) != steered


def test_vllm_killed_and_started_again(world: World) -> None:
    """The daemon finds the new vLLM and stages by itself; the same text comes back.

    Nobody calls the daemon meanwhile, and nothing of the old instance is left.
    """
    steered, plain = world.complete(PROMPT, JOY), world.complete(PROMPT)
    old = {node.instance_id for node in world.nodes()}
    world.vllm.kill()
    world.start_vllm()
    serving = time.monotonic()
    wait_until(lambda: world.complete(PROMPT, JOY, max_tokens=24) == steered, CONVERGE_S, "staging")
    wait_until(world.converged, CONVERGE_S, "convergence")
    assert time.monotonic() - serving < CONVERGE_S
    assert {node.instance_id for node in world.nodes()}.isdisjoint(old)
    assert world.complete(PROMPT) == plain


def test_a_vector_that_does_not_fit_is_refused_whole(world: World) -> None:
    """One of another width is refused by name of what is wrong; nothing changes anywhere."""
    before = world.client.get_policy().generation
    narrow = save({"joy": np.ones((LAYERS, 64), np.float32)})
    with pytest.raises(Exception, match="576"):
        world.client.register_vector(narrow, name="narrow", timeout=CONVERGE_S)
    assert world.client.get_policy().generation == before
    assert [vector.name for vector in world.client.list_vectors()] == ["joy"]
