"""hotwirectl verify against a stand-in of vLLM: it passes, and each planted fault is found."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hotwirectl.main import run
from hotwired.v1.node_pb2 import (
    NODE_ROLE_ENGINE,
    NODE_ROLE_FRONTEND,
    NODE_ROLE_WORKER,
    NODE_STATE_DISARMED,
)
from hotwired.v1.stats_pb2 import EngineStats, WorkerStats
from hotwired.v1.vector_pb2 import Vector
from tests.fakes.fake_daemon import FakeDaemon, fake_daemon, node
from tests.fakes.fake_vllm import ENGINE, MODEL, FakeVllm, serving

RANKS = ("i/worker-0-0-0", "i/worker-0-0-1")
FIRES, ZERO, MATES = "steering fires", "a zero vector changes nothing", "batchmates are untouched"
CACHE, TAPS = "the prefix cache keeps steered apart", "every rank's tap works"
REFUSAL, REPEATS = "an unknown vector is refused if strict", "repeat runs are the same"
NODES, SERVED = "the nodes are converged and armed", "unsteered requests are served"
EVERY = [SERVED, NODES, FIRES, ZERO, MATES, CACHE, TAPS, REFUSAL, REPEATS]


class World:
    """A daemon, a vLLM, and the command."""

    def __init__(self, daemon: FakeDaemon, vllm: FakeVllm, url: str, capsys: Any) -> None:
        self.daemon, self.vllm, self.url, self._capsys = daemon, vllm, url, capsys

    def verify(self, *more: str) -> tuple[int, dict[str, Any], str]:
        """Runs it; returns exit code, the JSON it printed and what it said on stderr."""
        code = run(["verify", "--url", self.url, "-o", "json", *more])
        captured = self._capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else {}, captured.err

    def results(self, *more: str) -> dict[str, tuple[str, str]]:
        """Runs it; returns how each check ended and what was seen, by its name."""
        _, form, err = self.verify(*more)
        assert form, err
        return {check["name"]: (check["status"], check["seen"]) for check in form["checks"]}


@pytest.fixture
def world(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[World]:
    """Two ranks, all well."""
    for name in ("HOTWIRE_TIMEOUT", "HOTWIRE_OUTPUT", "HOTWIRE_SERVER", "HOTWIRE_VLLM_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    with fake_daemon(short_dir) as daemon:
        daemon.state.nodes = [
            _node("i/engine-0-0-0", NODE_ROLE_ENGINE),
            _node("i/frontend-0-0-0", NODE_ROLE_FRONTEND),
            *(_node(name, NODE_ROLE_WORKER, tp_rank=at) for at, name in enumerate(RANKS)),
        ]
        ranks = [WorkerStats(node=name, steered_tokens_total=5) for name in RANKS]
        daemon.state.engines = [EngineStats(engine=ENGINE, workers=ranks)]
        vllm = FakeVllm(daemon.state)
        with serving(vllm) as url:
            yield World(daemon, vllm, url, capsys)


def _node(name: str, role: int, **fields: Any) -> Any:
    return node(name, roles=[role], model=MODEL, sites=["post"], vllm_version="0.32.0", **fields)


def test_a_sound_server_passes_and_keeps_nothing(world: World) -> None:
    """Exit code 0; the vectors are gone, the policy is as it was, nothing else was registered."""
    before = world.daemon.state.policy.SerializeToString()
    code, form, err = world.verify()
    assert (code, err) == (0, "")
    assert [check["name"] for check in form["checks"]] == EVERY
    assert {check["status"] for check in form["checks"]} == {"passed"}
    assert form["passed"]
    assert world.daemon.state.vectors == {}
    assert world.daemon.state.policy.SerializeToString() == before
    calls = [(method, request) for method, request, _ in world.daemon.state.calls]
    assert "SetPolicy" not in {method for method, _ in calls}
    headers = [request.header for method, request in calls if method == "RegisterVector"]
    assert all(h.name.startswith("hotwire-verify-") for h in headers)
    assert all(h.model == MODEL and 0 < h.ttl.seconds <= 3600 for h in headers)
    assert len(world.vllm.requests) < 120
    assert max(body["max_tokens"] for body in world.vllm.requests) <= 32
    assert form["cost"][0]["name"] == "unsteered"
    assert all(row["p50"] > 0 for row in form["cost"][:3])
    assert form["cost"][3]["why_not"].startswith("only a throwaway server")


@pytest.mark.parametrize(
    ("fault", "failing", "seen"),
    [
        ({"drops": True}, FIRES, "nothing moves"),
        ({"even": True}, FIRES, "the opposite scale differs by 0 nats only"),
        ({"nothing_acts": True}, FIRES, "a scale of 0 changes a log-probability by 0.5"),
        ({"zero_acts": True}, ZERO, "a row of zeros changes a log-probability by 1"),
        ({"leaks_to_mates": True}, MATES, "an unsteered request differs by 1 nats"),
        ({"leaks_to_cache": True}, CACHE, "after a steered request a plain one differs by 1"),
        ({"serves_steered_from_cache": True}, CACHE, "took 288 tokens from the cache"),
        ({"stuck_rank": RANKS[1]}, TAPS, f"no token was steered on {RANKS[1]}"),
        ({"failing_rank": RANKS[0]}, TAPS, f"REVISION_NOT_STAGED on {RANKS[0]}"),
        ({"dead_layer": 3}, TAPS, "nothing moves"),
        ({"serves_unknown": True}, REFUSAL, "it was served"),
        ({"other_reason": True}, REFUSAL, "it was refused with OTHER"),
        ({"drifts": True}, REPEATS, "an unsteered request differs by 1 from before"),
        ({"noisy_steering": True}, REPEATS, "from itself"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_planted_fault_fails_its_check(
    world: World, fault: dict[str, Any], failing: str, seen: str
) -> None:
    """With the sentence that says what was seen; the unsteered check and the nodes' pass."""
    for name, value in fault.items():
        setattr(world.vllm, name, value)
    results = world.results()
    assert results[failing][0] == "failed", results
    assert seen in results[failing][1]
    assert results[NODES][0] == results[SERVED][0] == "passed"


def test_a_server_that_drops_specifications_fails_more_than_one_check(world: World) -> None:
    """Exit code 4 and the names of the checks on stderr; the vectors are removed all the same."""
    world.vllm.drops = world.vllm.serves_unknown = True
    code, form, err = world.verify("--quick")
    assert (code, form["passed"]) == (4, False)
    failure = json.loads(err)
    assert (failure["reason"], failure["exit_code"]) == ("VERIFY_FAILED", 4)
    assert {FIRES, TAPS, REFUSAL} <= set(failure["message"].partition(": ")[2].split(", "))
    assert world.daemon.state.vectors == {}


def test_sigterm_removes_the_vectors(world: World) -> None:
    """It is as good as Ctrl-C: exit code 130, and the names are gone before their time."""
    world.vllm.slow = 0.2
    command = [sys.executable, "-m", "hotwirectl", "verify", "--url", world.url]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("passed: unsteered"):
        assert process.poll() is None
    assert len(world.daemon.state.vectors) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 130
    assert world.daemon.state.vectors == {}
    process.stderr.close()


def test_the_kill_switch_is_said_and_left_on(world: World) -> None:
    """What steers is not shown; what needs no steering is; exit code 5."""
    world.daemon.state.policy.kill_switch = True
    code, form, err = world.verify()
    results = {check["name"]: check for check in form["checks"]}
    assert (code, json.loads(err)["code"]) == (5, "INCOMPLETE")
    for name in (FIRES, ZERO, MATES, CACHE, TAPS, REFUSAL, REPEATS):
        assert results[name]["status"] == "not shown"
        assert results[name]["seen"] == "the kill switch is on"
    assert results[SERVED]["status"] == results[NODES]["status"] == "passed"
    assert [bool(row["ms"]) for row in form["cost"]] == [True, False, False, False]
    assert world.daemon.state.policy.kill_switch


def test_a_dose_limit_holds_the_scale_down(world: World) -> None:
    """Half of what was refused is tried; where that is too little to see, it is not shown."""
    world.vllm.limit = 10.0
    _, form, _ = world.verify()
    fires = next(check for check in form["checks"] if check["name"] == FIRES)
    assert (fires["status"], fires["figures"]["scale"]) == ("passed", 8.0)
    world.vllm.limit = 0.01
    results = world.results()
    assert results[FIRES] == ("not shown", "the policy's dose limit refuses it")
    assert results[REFUSAL][0] == "passed"
    world.vllm.limit = 1.5
    assert world.results()[FIRES][0] == "passed"


def test_what_the_server_does_not_tell_is_said(world: World) -> None:
    """Without counts of cached tokens or log-probabilities, outputs and texts are compared."""
    world.vllm.no_details = world.vllm.no_logprobs = True
    results = world.results("--quick")
    assert {status for status, _ in results.values()} == {"passed"}
    assert results[CACHE][1].startswith("outputs only (no --enable-prompt-tokens-details)")
    assert "texts alone" in results[SERVED][1]


def test_a_disarmed_rank_fails_the_nodes(world: World) -> None:
    """It is named, with why, and without the paths in that."""
    rank = world.daemon.state.nodes[3]
    rank.state, rank.detail = NODE_STATE_DISARMED, "no blocks in /home/ada/models/odd"
    status, seen = world.results()[NODES]
    assert (status, seen) == ("failed", f"{RANKS[1]} is disarmed: no blocks in odd")


def test_a_rank_that_is_missing_fails_the_nodes(world: World) -> None:
    """A grid of ranks with a hole in it is no whole instance."""
    world.daemon.state.nodes.append(_node("i/worker-0-1-0", NODE_ROLE_WORKER, pp_rank=1))
    assert world.results("--quick")[NODES] == ("failed", "3 of 4 ranks are there")


def test_the_block_and_the_page(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text has checks, versions and costs; the page the same and plots, and fetches nothing."""
    page = tmp_path / "page.html"
    assert run(["verify", "--url", world.url, "--html", str(page)]) == 0
    captured = capsys.readouterr()
    for part in (*EVERY, "vLLM 0.32.0", RANKS[0], "MS/TOKEN", "kill_switch off", "9 passed"):
        assert part in captured.out
    assert f"passed: {FIRES}" in captured.err.splitlines()
    shown = page.read_text()
    for title in ("Effect by scale", "Effect by place", "Tokens steered by rank", "Cost"):
        assert f"<h2>{title}</h2>" in shown
    for never in ("<script", "http://", "https://", "url(", "@import", str(tmp_path)):
        assert never not in shown


def test_the_report_has_no_names_and_no_paths(world: World) -> None:
    """A model that is served under its path is called by the path's last part."""
    path = "/home/ada/models/odd"
    world.vllm.models = (path,)
    for each in world.daemon.state.nodes:
        each.model = path
    code, form, err = world.verify("--quick")
    assert (code, err) == (0, "")
    assert form["model"] == "odd"
    assert "/home" not in json.dumps(form)


def test_leftovers_are_swept_and_others_left_alone(world: World) -> None:
    """Expired vectors of a killed run go; those of a run under way, and everybody else's, stay."""
    soon = {"hotwire-verify-a-zero": -9, "hotwire-verify-b-zero": 900, "joy": -9}
    for name, seconds in soon.items():
        vector = world.daemon.state.vectors[name] = Vector(name=name)
        vector.expire_time.FromSeconds(int(time.time()) + seconds)
    world.verify("--quick")
    assert sorted(world.daemon.state.vectors) == ["hotwire-verify-b-zero", "joy"]


def _no_server(world: World) -> None:
    world.url = "http://127.0.0.1:1"


def _another_model(world: World) -> None:
    world.vllm.models = ("other",)


def _another_daemon(world: World) -> None:
    world.vllm.unknown_to_daemon = True


def _no_nodes(world: World) -> None:
    world.daemon.state.nodes = []


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        (_no_server, (), "name its address with --url"),
        (_another_model, (), "no model is in both"),
        (_another_daemon, (), "is none of those that the daemon knows"),
        (_no_nodes, (), "name a model's directory with --model"),
        (_no_nodes, ("--model", "/nowhere"), "is no directory with a model"),
        (lambda world: None, ("--model", "other"), "none of both is other"),
        (lambda world: None, ("--url", "ftp://x"), "neither http://HOST:PORT nor unix:PATH"),
        (lambda world: None, ("--url", "http://h:port"), "port"),
        (lambda world: None, ("--", "--dtype", "half"), "are for a --throwaway server"),
    ],
)
def test_what_cannot_be_verified_is_a_usage_error(
    world: World, change: Callable[[World], None], more: tuple[str, ...], said: str
) -> None:
    """Exit code 2 and the way out; nothing is left registered."""
    change(world)
    code, form, err = world.verify(*more)
    assert (code, form) == (2, {})
    assert said in json.loads(err)["message"]
    assert world.daemon.state.vectors == {}


def test_the_key_of_the_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """VLLM_API_KEY is sent; without it the server's answer is shown."""
    world.vllm.key = "k"
    code, _, err = world.verify("--quick")
    assert code == 2
    assert "HTTP 401: Unauthorized" in json.loads(err)["message"]
    monkeypatch.setenv("VLLM_API_KEY", "k")
    assert world.verify("--quick")[0] == 0
