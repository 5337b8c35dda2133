"""What lies among the nodes' sockets and is none of ours harms no node that is."""

import os
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from hotwired import errors
from hotwired.run_dir import target_of
from tests.daemon.harness import Fleet, eventually


@contextmanager
def stranger(path: Path, answer: bytes | None) -> Iterator[None]:
    """Serves gRPC with one answer to every call, or with no method at all."""
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: answer)

    class Handlers(grpc.GenericRpcHandler):
        def service(self, handler_call_details: object) -> object:
            return handler if answer is not None else None

    path.parent.mkdir(parents=True, mode=0o700)
    server = grpc.server(ThreadPoolExecutor(1), handlers=(Handlers(),))
    server.add_insecure_port(target_of(path))
    server.start()
    yield
    server.stop(0).wait()


@pytest.mark.parametrize("folder", [b"\xff\xfe", b"a\nb", b"\x1b[31m"])
def test_a_folder_with_a_name_that_cannot_be_shown(fleet: Fleet, folder: bytes) -> None:
    """It is passed over, and the daemon goes on finding and serving nodes."""
    daemon = fleet.daemon()
    path = os.fsencode(daemon.run_dir) + b"/nodes/" + folder
    (daemon.run_dir / "nodes").mkdir(mode=0o750)
    os.mkdir(path)  # noqa: PTH102 -- a Path is text
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + b"/engine-0-0-0.sock")
        listener.listen()
        fleet.instance()
        daemon.wait_for(3)
        assert daemon.register().converged


@pytest.mark.parametrize("answer", [None, b"\xff\xff\xff"])
def test_a_server_of_something_else(fleet: Fleet, answer: bytes | None) -> None:
    """It is UNREACHABLE, with the cause, and is no fault of ours in the log."""
    daemon = fleet.daemon()
    with stranger(daemon.run_dir / "nodes" / "other" / "engine-0-0-0.sock", answer):
        eventually(lambda: daemon.states() == {"other/engine-0-0-0": "UNREACHABLE"})
        assert "does not answer as a node" in daemon.details()["other/engine-0-0-0"]
    assert not daemon.log("reconciling failed")


def test_a_node_that_is_another_boot_each_time(fleet: Fleet) -> None:
    """It gets no snapshot, is asked no more than some times a second, and harms no other."""
    daemon = fleet.daemon()
    fleet.instance("good")
    node = fleet.fake("engine", instance_id="bad")
    node.refuse["Commit"] = lambda: errors.BootIdMismatch("another boot")
    fleet.fake("worker", instance_id="bad")
    eventually(lambda: node.calls.count("Commit") > 3)
    before = len(node.calls)
    node.boot_id = uuid.uuid4().hex
    assert not daemon.register(timeout=2).converged
    assert len(node.calls) - before < 120
    assert daemon.states()["good/engine-0-0-0"] == "CONVERGED"
