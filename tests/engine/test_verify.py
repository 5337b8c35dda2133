"""hotwirectl verify against a real `vllm serve` and daemon, as docs/verify.md has it run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotwired.v1.policy_pb2 import DOSE_MODE_CLAMP, Policy
from tests.engine.conftest import START_S
from tests.support.engine_http import BIN, World
from tests.support.engine_models import TINY_LAYERS, TINY_WIDTH, direction, smollm2
from tests.support.engine_process import ROOT, environment
from tests.support.node_driver import wait_until


@pytest.fixture(scope="module")
def served(spoken_model: str) -> Iterator[World]:
    """The small model and a daemon."""
    root = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    world = World(root, spoken_model, START_S)
    try:
        world.start_vllm()
        world.start_daemon()
        wait_until(world.converged, 10, "the daemon finds vLLM")
        yield world
    finally:
        world.close()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def world(served: World) -> World:
    """Both up, with no policy."""
    served.client.set_policy(Policy())
    return served


def verify(world: World, *more: str) -> tuple[int, dict[str, Any]]:
    """Runs the command line tool; returns its exit code and what it printed."""
    return run(environment(world.run_dir), "--url", f"unix:{world.uds}", *more)


def run(env: dict[str, str], *more: str, timeout_s: float = 100) -> tuple[int, dict[str, Any]]:
    """Runs it in an environment."""
    done = subprocess.run(
        [str(BIN / "hotwirectl"), "verify", "-o", "json", *more],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def results(form: dict[str, Any]) -> dict[str, str]:
    """How each check ended; what was seen if it did not pass."""
    return {
        check["name"]: check["status"] if check["status"] == "passed" else check["seen"]
        for check in form["checks"]
    }


def test_a_running_server_passes(world: World, tmp_path: Path) -> None:
    """Everything is shown, with figures that make sense; nothing is left, nothing was changed."""
    generation = world.client.get_policy().policy.etag
    before = world.complete("The weather today is").text
    page = tmp_path / "page.html"
    code, form = verify(world, "--html", str(page))
    assert set(results(form).values()) == {"passed"}, results(form)
    assert (code, form["passed"]) == (0, True)
    figures = {check["name"]: check["figures"] for check in form["checks"]}
    fires = figures["steering fires"]
    assert fires["effect_nats"] > 0.1
    assert fires["scale_0_nats"] < 1e-4
    assert max(figures["a zero vector changes nothing"]["nats"]) < 1e-4
    assert figures["batchmates are untouched"]["untouched_nats"] < 1e-3
    layers = figures["every rank's tap works"]["effect_by_layer"]
    assert sorted(layers) == ["0", "2", "3"]
    (tokens,) = figures["every rank's tap works"]["steered_tokens_by_rank"].values()
    assert tokens > 50
    assert form["nodes"][0]["shape"] == f"{TINY_LAYERS}x{TINY_WIDTH}"
    assert all(row["p10"] <= row["p50"] <= row["p90"] for row in form["cost"][:3])
    assert "<svg" in page.read_text()
    assert world.client.list_vectors() == []
    assert world.client.get_policy().policy.etag == generation
    assert world.complete("The weather today is").text == before
    (engine,) = world.client.stats().engines
    # The one that verify asks for by a name that is not registered is refused before the engine.
    assert engine.requests_unsteered_total == {}


def test_the_kill_switch_is_honoured(world: World) -> None:
    """It is said, and stays on."""
    world.client.set_kill_switch(True)
    code, form = verify(world, "--quick")
    found = results(form)
    assert code == 5
    assert found["steering fires"] == found["every rank's tap works"] == "the kill switch is on"
    assert found["unsteered requests are served"] == "passed"
    assert form["policy"]["kill_switch"] == "on"
    assert world.client.get_policy().policy.kill_switch


@pytest.mark.parametrize(
    ("policy", "seen"),
    [
        (Policy(max_relative_dose=0.5), "the policy has a dose limit and no reference norm"),
        (
            Policy(
                max_relative_dose=1e-7,
                reference_norms=dict.fromkeys(range(TINY_LAYERS), 1.0),
                dose_mode=DOSE_MODE_CLAMP,
            ),
            "the policy's dose limit keeps what is added too small to be seen",
        ),
        (Policy(max_live_relative_dose=1e-7), "the policy's dose limit keeps what is added"),
    ],
    ids=["no-norms", "clamp", "live"],
)
def test_a_dose_limit_is_honoured(world: World, policy: Policy, seen: str) -> None:
    """What it refuses, or leaves nothing to see of, is not shown, and no fault."""
    world.client.set_policy(policy)
    code, form = verify(world, "--quick")
    assert code == 5
    assert results(form)["steering fires"].startswith(seen)


def test_within_a_dose_limit_it_steers_less(world: World) -> None:
    """The greatest dose it asked for is below the limit, and everything is shown."""
    norms = dict.fromkeys(range(TINY_LAYERS), 10.0)
    world.client.set_policy(Policy(max_relative_dose=3.0, reference_norms=norms))
    code, form = verify(world, "--quick")
    assert (code, set(results(form).values())) == (0, {"passed"}), results(form)
    (engine,) = world.client.stats().engines
    assert form["checks"][2]["figures"]["scale"] <= 30.0
    assert not engine.requests_unsteered_total.get("DOSE_EXCEEDED")


def test_a_default_specification_is_no_baseline(world: World) -> None:
    """Where the policy steers what asks for nothing, verify's plain requests say that they do."""
    vector = direction(3, None, norm=40.0, width=TINY_WIDTH)
    from safetensors.numpy import save

    world.client.register_vector(save({"row": vector.rows[0]}), name="always")
    spec = json.dumps({"id": "always", "layer": 1})
    world.client.set_policy(Policy(default_spec=spec))
    code, form = verify(world, "--quick")
    world.client.set_policy(Policy())
    world.client.delete_vector("always")
    assert (code, set(results(form).values())) == (0, {"passed"}), results(form)


@pytest.mark.slow
def test_a_throwaway_server(tmp_path: Path) -> None:
    """For the demo model, between two bare ones; all are gone afterwards, and idle cost is told."""
    env = environment(tmp_path / "nobody") | {"VLLM_PLUGINS": "hotwire_plugin"}
    own = Path("/tmp")
    before = set(own.glob("hw-verify-*"))
    options = ["--", "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager"]
    code, form = run(env, "--model", smollm2(), *options, timeout_s=START_S)
    assert (code, set(results(form).values())) == (0, {"passed"}), results(form)
    assert form["against"] == "a throwaway server"
    assert [row["name"] for row in form["cost"]][3:] == ["bare vLLM, before", "bare vLLM, after"]
    assert form["idle_cost"]["bare_apart"] >= 0
    assert form["model"] == Path(smollm2()).name
    cache = next(c for c in form["checks"] if c["name"].startswith("the prefix cache"))
    assert cache["seen"].startswith("cached tokens: plain ")
    assert set(own.glob("hw-verify-*")) == before
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in left.splitlines() if "hw-verify-" in line and "ps " not in line]
    assert os.environ.get("HOTWIRE_RUN_DIR") is None or not (tmp_path / "nobody").exists()
