"""What a daemon and its nodes really write, line by line against the schema."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import jsonschema

from hotwired import errors
from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import Daemon, Fleet, a_file, eventually, refused
from tests.support.log_schema import DOCS, audits

VALID = jsonschema.Draft202012Validator(json.loads((DOCS / "log.schema.json").read_text()))


def checked(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a file; each keeps to the schema and is plain ASCII without controls."""
    raw = path.read_bytes()
    assert raw.endswith(b"\n")
    lines = []
    for text in raw.decode("ascii").splitlines():
        assert text.isprintable()
        line = json.loads(text)
        VALID.validate(line)
        lines.append(line)
    return lines


def every_action(daemon: Daemon) -> None:
    """Does every kind of change."""
    stub, name = daemon.stub, "joy"
    revision = daemon.register(name, a_file(1.0, model="org/model")).vector.revision
    daemon.register(name, a_file(2.0), canary_percent=5.0, model="org/model")
    request = pb.UpdateVectorRequest(name=name, disabled=True, revision=revision)
    request.update_mask.paths.append("disabled")
    stub.UpdateVector(request, timeout=5)
    daemon.set_policy(max_relative_dose=0.5, reference_norms={1: 2.0}, strict=True)
    daemon.delete(name)


def test_every_line_keeps_to_the_schema(fleet: Fleet) -> None:
    """Of all audited actions, of refusals, of nodes that come, misbehave and go."""
    daemon = fleet.daemon("--log-level", "debug", "--metrics-listen", "127.0.0.1:0")
    instance = fleet.instance()
    daemon.wait_for(3)
    every_action(daemon)
    worker = fleet.fake("worker", rank=1)
    worker.refuse["Stage"] = lambda: errors.VectorTooLarge("full")
    eventually(lambda: daemon.states().get("i1/worker-0-0-1") == "CONVERGED")
    refused(lambda: daemon.register("awe", a_file(3.0)))
    refused(lambda: daemon.get("x\n\x1b[31mforged"))
    fleet.fake("engine", rank=3, instance_id="i3", generation=daemon.generation() + 10)
    eventually(lambda: daemon.log("audit", action="overtake"))
    instance.stop()
    eventually(lambda: len(daemon.log("node gone")) >= 3)
    assert daemon.stop() == 0
    lines = checked(daemon.root / "log")
    assert {line["action"] for line in lines if line["event"] == "audit"} == audits().keys()
    assert {"serving", "metrics served", "rpc", "node found", "node described"} <= {
        line["event"] for line in lines
    }
    assert len({line["pid"] for line in lines}) == 1


def test_an_rpcs_lines_have_its_context(fleet: Fleet) -> None:
    """The change that it makes is found by the vector and the generation."""
    daemon = fleet.daemon()
    answer = daemon.register("joy")
    (rpc,) = daemon.log("rpc", method="RegisterVector")
    (audit,) = daemon.log("audit")
    assert rpc["vector"] == audit["vector"] == "joy"
    assert rpc["generation"] == audit["generation"] == answer.generation


def test_a_file_that_is_rotated(fleet: Fleet) -> None:
    """Renamed while it is written to: the line of each call is in one of the files."""
    path = fleet.root / "hotwired.log"
    daemon = fleet.daemon("--log-file", str(path))
    done = threading.Event()
    called = [0]

    def call() -> None:
        while not done.is_set():
            daemon.generation()
            called[0] += 1

    thread = threading.Thread(target=call)
    thread.start()
    for number in range(5):
        before = called[0]
        eventually(lambda before=before: called[0] > before + 5)
        path.rename(fleet.root / f"hotwired.log.{number}")
        if number % 2:
            assert daemon.process is not None
            daemon.process.send_signal(signal.SIGHUP)
    done.set()
    thread.join()
    assert daemon.stop() == 0
    files = sorted(fleet.root.glob("hotwired.log*"))
    lines = [line for file in files for line in checked(file)]
    told = [line for line in lines if line["event"] == "rpc" and line["method"] == "GetPolicy"]
    assert len(told) == called[0]
    assert len(files) == 6
    assert checked(path)[-1]["event"] == "stopped"
    assert (daemon.root / "log").read_bytes() == b""


def test_sighup_alone_opens_the_file(fleet: Fleet) -> None:
    """Without a line to write."""
    path = fleet.root / "hotwired.log"
    daemon = fleet.daemon("--log-file", str(path))
    path.rename(fleet.root / "old")
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    eventually(path.exists)
    assert daemon.stop() == 0


def test_a_file_that_cannot_be_opened(fleet: Fleet) -> None:
    """The daemon says so and does not start."""
    daemon = fleet.daemon(start=False)
    process = daemon.spawn("--log-file", str(fleet.root / "nowhere" / "log"))
    _, said = process.communicate(timeout=20)
    assert (process.returncode, b"nowhere/log" in said) == (1, True)
    (line,) = checked(daemon.root / "log")
    assert (line["event"], line["reason"]) == ("not started", "OS_ERROR")
