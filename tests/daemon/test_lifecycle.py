"""Starting, dying, starting again: nothing is lost, nothing is stolen, all converges by itself."""

import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hotwired import __version__
from hotwired.run_dir import socket_path
from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import Daemon, Fleet, a_file, eventually, refusal_of, refused, upload
from tests.daemon.harness import fleet as make_fleet


def failed_start(daemon: Daemon, *options: str) -> str:
    """Returns what a daemon says that must not start."""
    process = daemon.spawn(*options)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    return errors.decode()


def test_killed_and_started_again(fleet: Fleet) -> None:
    """After kill -9 the registry is intact, and the nodes converge within the promise."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=2)
    daemon.wait_for(4)
    vectors = [daemon.register(f"v{n}", a_file(float(n))).vector for n in range(5)]
    policy = daemon.set_policy(max_relative_dose=0.5, reference_norms={1: 2.0}).policy
    daemon.delete("v0")
    generation = daemon.generation()
    daemon.kill()
    daemon.start()
    assert daemon.generation() == generation
    assert [daemon.get(vector.name) for vector in vectors[1:]] == vectors[1:]
    assert daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5).policy == policy
    daemon.wait_for(4)
    assert instance.snapshot().generation == generation
    assert daemon.register("v9", a_file(9.0)).generation == generation + 1


def test_killed_in_the_middle_of_registrations(fleet: Fleet) -> None:
    """What a call has confirmed is there; what it hasn't is there wholly or not at all."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=2)
    daemon.wait_for(4)
    for attempt in range(3):
        confirmed = set(daemon.names())

        def push(attempt: int = attempt, confirmed: set[str] = confirmed) -> None:
            for number in range(1000):
                name = f"v{attempt}-{number}"
                try:
                    daemon.register(name, a_file(attempt + number / 100))
                except grpc.RpcError:
                    return
                confirmed.add(name)

        thread = threading.Thread(target=push)
        thread.start()
        time.sleep(0.15 + 0.07 * attempt)
        daemon.kill()
        thread.join()
        daemon.start()
        there = set(daemon.names())
        assert confirmed <= there
        assert len(there - confirmed) <= 1
        revisions = {daemon.get(name).revision for name in there}
        assert set(daemon.blobs()) == revisions
        daemon.wait_for(4)
        assert set(instance.snapshot().vectors) == there
        eventually(lambda revisions=revisions: instance.held(0) == instance.held(1) == revisions)


def test_leftovers_on_workers_are_discarded_after_a_crash(fleet: Fleet) -> None:
    """A vector staged but never stored is forgotten by the workers."""
    daemon = fleet.daemon()
    engine, worker = fleet.fake("engine"), fleet.fake("worker")
    daemon.wait_for(2)
    worker.held["f" * 64] = b"left over"
    eventually(lambda: not worker.held)
    assert "Discard" in worker.calls
    assert engine.generation == 1


def test_a_restarted_node_gets_everything_again(fleet: Fleet) -> None:
    """A new boot holds nothing: it is staged and committed without anybody's doing."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=2)
    daemon.wait_for(4)
    revision = daemon.register("joy").vector.revision
    for key, role, rank in (("worker-1", "worker", 1), ("engine-0", "engine", 0)):
        instance.stop_node(key)
        instance.start_node(role, rank)
    eventually(lambda: "joy" in instance.snapshot().vectors)
    eventually(lambda: revision in instance.held(1))
    daemon.wait_for(4)


def test_a_node_that_changed_its_boot_behind_the_same_socket(fleet: Fleet) -> None:
    """The boot id alone tells that a process has forgotten."""
    daemon = fleet.daemon()
    engine, worker = fleet.fake("engine"), fleet.fake("worker")
    daemon.wait_for(2)
    revision = daemon.register("joy").vector.revision
    for node in (engine, worker):
        node.boot_id, node.generation, node.snapshot = "another", 0, None
        node.held.clear()
    eventually(lambda: revision in worker.held)
    eventually(lambda: engine.snapshot is not None and engine.snapshot.vectors)


def test_both_sides_restarted(fleet: Fleet) -> None:
    """Daemon and engine start together and find each other."""
    daemon, instance = fleet.daemon(), fleet.instance()
    daemon.wait_for(3)
    daemon.register("joy")
    daemon.kill()
    instance.stop()
    again = fleet.instance("i2")
    daemon.start()
    daemon.wait_for(3)
    assert "joy" in again.snapshot().vectors


def test_the_socket_of_a_dead_process_is_cleared(fleet: Fleet) -> None:
    """A node killed with -9 leaves its socket; it doesn't stay in the list for ever."""
    daemon = fleet.daemon()
    path = socket_path(daemon.run_dir, "dead", "engine", 0, 0, 0)
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    eventually(lambda: daemon.states().get("dead/engine-0-0-0") == "UNREACHABLE")
    eventually(lambda: not path.parent.exists())
    assert not daemon.states()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_graceful_stop(fleet: Fleet, number: int) -> None:
    """NOT_SERVING first, watchers and uploads end, the socket goes, the exit status is 0."""
    daemon = fleet.daemon()
    watch = health_pb2_grpc.HealthStub(daemon.channel).Watch(
        health_pb2.HealthCheckRequest(), timeout=20
    )
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    stats = daemon.stub.WatchStats(pb.WatchStatsRequest(interval_seconds=60), timeout=20)
    next(stats)
    assert daemon.process is not None
    daemon.process.send_signal(number)
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.RpcError) as caught:
        next(stats)
    assert refusal_of(caught.value).reason == "SHUTTING_DOWN"
    watch.cancel()
    assert daemon.stop(number) == 0
    assert not daemon.socket.exists()
    assert [daemon.log(event) != [] for event in ("stopping", "stopped")] == [True, True]


def test_a_stop_during_an_upload_and_a_push(fleet: Fleet) -> None:
    """The upload is aborted and leaves nothing; the push, stored already, is answered."""
    daemon = fleet.daemon()
    fleet.fake("engine")
    worker = fleet.fake("worker")
    daemon.wait_for(2)
    worker.hung.set()

    def slow() -> Iterator[pb.RegisterVectorRequest]:
        yield from upload("awe", a_file(2.0), chunk=64)[:2]
        time.sleep(3)

    uploading = daemon.stub.RegisterVector.future(slow(), timeout=20)
    pushing = daemon.stub.RegisterVector.future(iter(upload("joy", a_file(1.0))), timeout=2)
    eventually(lambda: daemon.names() == ["joy"])
    started = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - started < 4
    assert refusal_of(uploading.exception(5)).reason == "SHUTTING_DOWN"
    assert not pushing.result(5).converged
    worker.hung.clear()
    daemon.start()
    daemon.wait_for(2)
    assert daemon.names() == ["joy"]
    assert len(worker.held) == len(daemon.blobs()) == 1


def test_callers_that_go_away_at_any_moment(fleet: Fleet) -> None:
    """Cancelled and expired calls of every kind: the daemon lives, tells no fault, converges."""
    daemon = fleet.daemon()
    fleet.instance(tp_size=2)
    daemon.wait_for(4)
    stub, messages = daemon.stub, upload("joy", a_file(), chunk=64)
    calls = (
        lambda: stub.WatchStats(pb.WatchStatsRequest(interval_seconds=0.1), timeout=9),
        lambda: stub.ListVectors.future(pb.ListVectorsRequest(page_size=-1), timeout=9),
        lambda: stub.RegisterVector.future(iter(messages), timeout=9),
        lambda: stub.Stats.future(pb.StatsRequest(), timeout=9),
        lambda: stub.SetPolicy.future(pb.SetPolicyRequest(policy={"strict": True}), timeout=0.002),
        lambda: stub.SetPolicy.future(pb.SetPolicyRequest(policy={"strict": False}), timeout=9),
    )
    for number in range(400):
        call = calls[number % len(calls)]()
        time.sleep(0.001 * (number % 7))
        call.cancel()
    daemon.wait_for(4)
    assert daemon.log("rpc", code="CANCELLED")
    assert not daemon.log("internal error")
    assert daemon.register("joy", a_file(3.0)).converged
    assert daemon.stop() == 0
    assert daemon.process is not None
    assert daemon.process.stderr is not None
    # gRPC itself may report that an answer came too late; nothing of ours may have failed.
    assert not re.search(rb'File ".*/hotwired/', daemon.process.stderr.read())
    for line in daemon.log("library message"):
        assert not re.search(r'File ".*/hotwired/', line.get("exception", "") + line["message"])


def test_a_second_daemon_is_refused(fleet: Fleet) -> None:
    """Same socket, state or nodes: it says DAEMON_LOCKED, and the first one is unharmed."""
    daemon = fleet.daemon()
    daemon.register("joy")
    assert daemon.process is not None
    for options in (
        (),
        ("--state-dir", str(daemon.root / "other")),
        ("--listen", f"unix:{daemon.root}/other.sock"),
        ("--state-dir", str(daemon.root / "third"), "--listen", f"unix:{daemon.root}/third.sock"),
    ):
        message = failed_start(daemon, *options)
        assert "DAEMON_LOCKED" in message
        assert str(daemon.process.pid) in message
    assert daemon.names() == ["joy"]


def test_a_path_is_no_uri(short_dir: Path) -> None:
    """A run directory may hold what would be an escape, a query or a fragment in gRPC's address."""
    for fleet in make_fleet(short_dir / "a%41 b#?"):
        fleet.root.mkdir()
        daemon = fleet.daemon()
        fleet.instance()
        daemon.wait_for(3)
        assert daemon.register().converged


def test_a_stale_socket_is_replaced_and_anything_else_is_not(fleet: Fleet) -> None:
    """A crash leaves a socket; a file there is somebody's."""
    daemon = fleet.daemon()
    daemon.kill()
    assert daemon.socket.exists()
    daemon.start()
    daemon.stop()
    daemon.socket.write_text("mine")
    assert "SOCKET_INVALID" in failed_start(daemon)
    assert daemon.socket.read_text() == "mine"


def test_places_are_private(fleet: Fleet) -> None:
    """Socket 0600, directories 0700; a directory that others can write to is refused."""
    daemon = fleet.daemon()
    assert daemon.socket.stat().st_mode & 0o777 == 0o600
    for directory in (daemon.run_dir, daemon.state_dir, daemon.state_dir / "blobs"):
        assert directory.stat().st_mode & 0o777 == 0o700
    daemon.stop()
    daemon.run_dir.chmod(0o777)
    assert "DIRECTORY_UNSAFE" in failed_start(daemon)


def test_a_socket_path_too_long_is_named(fleet: Fleet) -> None:
    """Before anything is made."""
    daemon = fleet.daemon(start=False)
    assert "107" in failed_start(daemon, "--listen", "unix:/tmp/" + "x" * 120)
    assert not daemon.state_dir.exists()


def test_a_database_from_a_newer_version_is_refused(fleet: Fleet) -> None:
    """And left as it is."""
    daemon = fleet.daemon()
    daemon.stop()
    path = daemon.state_dir / "registry.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    message = failed_start(daemon)
    assert "STORE_TOO_NEW" in message
    assert str(path) in message
    assert path.read_bytes() == before


def test_a_damaged_or_missing_database_is_refused(fleet: Fleet) -> None:
    """The file is named; nothing is made anew, and the blobs stay."""
    daemon = fleet.daemon()
    revision = daemon.register("joy").vector.revision
    daemon.stop()
    path = daemon.state_dir / "registry.db"
    whole = path.read_bytes()
    path.write_bytes(b"x" * 100 + whole[100:])
    message = failed_start(daemon)
    assert "STORE_CORRUPT" in message
    assert str(path) in message
    path.unlink()
    assert "STORE_CORRUPT" in failed_start(daemon)
    assert daemon.blobs() == [revision]
    path.write_bytes(whole)
    assert daemon.start().names() == ["joy"]


def test_a_damaged_blob_harms_no_other(fleet: Fleet) -> None:
    """It is set aside, the others are served, and registering it again heals it."""
    daemon = fleet.daemon()
    bad = daemon.register("bad", a_file(1.0)).vector.revision
    daemon.register("good", a_file(2.0))
    daemon.stop()
    blob = daemon.state_dir / "blobs" / bad
    damaged = bytearray(blob.read_bytes())
    damaged[-1] ^= 1
    blob.write_bytes(damaged)
    daemon.start()
    instance = fleet.instance()
    eventually(lambda: "good" in instance.snapshot().vectors)
    assert "bad" not in instance.snapshot().vectors
    assert (daemon.state_dir / "quarantine" / bad).exists()
    assert daemon.log("blob quarantined; register the vector again", blob=bad)
    assert daemon.register("bad", a_file(1.0)).unchanged
    eventually(lambda: "bad" in instance.snapshot().vectors)
    assert blob.exists()


def test_orphans_are_removed_at_the_start(fleet: Fleet) -> None:
    """A blob without a row, and half a blob."""
    daemon = fleet.daemon()
    revision = daemon.register("joy").vector.revision
    daemon.kill()
    for name in ("0" * 64, ".partial-0123"):
        (daemon.state_dir / "blobs" / name).write_bytes(b"half")
    daemon.start()
    assert daemon.blobs() == [revision]


def test_a_deleted_state_directory_refuses_changes(fleet: Fleet) -> None:
    """Reads go on, changes are UNAVAILABLE: nothing is confirmed that wouldn't be there again."""
    daemon = fleet.daemon()
    daemon.register("joy")
    for path in (daemon.state_dir / "blobs").iterdir():
        path.unlink()
    for path in sorted(daemon.state_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for call in (
        lambda: daemon.register("awe", a_file(2.0)),
        lambda: daemon.delete("joy"),
        lambda: daemon.set_policy(strict=True),
    ):
        found = refused(call)
        assert (found.code, found.reason) == ("UNAVAILABLE", "STORE_UNAVAILABLE")
    assert daemon.names() == ["joy"]


def test_a_full_disk_refuses_and_passes(fleet: Fleet) -> None:
    """STORE_FULL, nothing partial left, reads go on; with room again, all goes on unrestarted."""
    daemon = fleet.daemon()
    daemon.register("joy")
    assert daemon.process is not None
    big = a_file(1.0, width=20_000)
    limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (256 << 10, limits[1]))
    before = daemon.blobs()
    found = refused(lambda: daemon.register("big", big))
    assert (found.code, found.reason) == ("RESOURCE_EXHAUSTED", "STORE_FULL")
    assert (daemon.names(), daemon.blobs(), daemon.health()) == (["joy"], before, "SERVING")
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
    assert not daemon.register("big", big).unchanged


def test_a_log_that_cannot_be_written_fails_no_call(fleet: Fleet) -> None:
    """A full disk or a closed pipe costs lines, not answers."""
    daemon = fleet.daemon()
    assert daemon.process is not None
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    assert daemon.names() == []
    assert refused(lambda: daemon.get("joy")).reason == "VECTOR_NOT_FOUND"
    assert refused(lambda: daemon.register("joy")).reason == "STORE_FULL"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command `hotwired`."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HOTWIRE")}
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-m", "hotwired.main", *arguments],
        env={**inherited, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_the_version() -> None:
    """It is printed, and it is the package's."""
    assert f"hotwired {__version__} " in run("version").stdout
    assert f'version = "{__version__}"' in Path("pyproject.toml").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "tcp:127.0.0.1:1"),
        ("--listen", "unix:"),
        ("--log-level", "loud"),
        ("--max-vector-mib", "0"),
        ("--nonsense",),
    ],
)
def test_bad_options_are_a_usage_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit status 2, and nothing is started."""
    result = run("serve", "--state-dir", str(tmp_path / "s"), *arguments)
    assert result.returncode == 2
    assert not (tmp_path / "s").exists()


def test_flags_beat_the_environment(short_dir: Path) -> None:
    """Each option has a variable; the flag wins. The refused socket path tells which was used."""
    long = "x" * 120
    for arguments, environment in (
        ((), {"HOTWIRED_LISTEN": f"unix:/tmp/{long}"}),
        (("--listen", f"unix:/tmp/{long}"), {"HOTWIRED_LISTEN": f"unix:{short_dir}/good.sock"}),
        ((), {"HOTWIRED_RUN_DIR": f"/tmp/{long}"}),
        ((), {"HOTWIRE_RUN_DIR": f"/tmp/{long}"}),
    ):
        result = run("serve", "--state-dir", str(short_dir / "s"), *arguments, **environment)
        assert (result.returncode, long in result.stderr) == (1, True)
