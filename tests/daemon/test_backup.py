"""`hotwired backup` and `hotwired restore`, as processes, beside a daemon at work."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotwired import backup, registry
from hotwired.archive import Manifest, Reader
from hotwired.errors import BackupInvalid, BlobCorrupt, StateNotEmpty, StoreTooNew
from hotwired.restore import restore
from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import Daemon, Fleet, a_file, eventually


def hotwired(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs the command `hotwired`."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HOTWIRE")}
    return subprocess.run(
        [sys.executable, "-m", "hotwired.main", *map(str, arguments)],
        env={**inherited, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def everything(daemon: Daemon) -> object:
    """Returns all that callers can see of a state."""
    vectors = [daemon.get(name) for name in daemon.names()]
    return vectors, daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A backup of three vectors, one of them with a canary, and a policy."""
    state_dir = Path(tmp_path_factory.mktemp("saved"))
    for fleet in fleets(state_dir):
        daemon = fleet.daemon()
        for number in range(3):
            daemon.register(f"v{number}", a_file(float(number + 1), layers=2, width=40))
        daemon.register("v1", a_file(9.0, layers=2, width=40), canary_percent=5.0)
        daemon.set_policy("strict", strict=True)
        out = io.BytesIO()
        backup.write(daemon.state_dir, out)
    return out.getvalue()


def fleets(root: Path) -> Iterator[Fleet]:
    """Yields one fleet, and ends it."""
    fleet = Fleet(root)
    try:
        yield fleet
    finally:
        fleet.close()


def test_there_and_back(fleet: Fleet, short_dir: Path) -> None:
    """What a daemon has is what the restored one has, and it goes on from there."""
    daemon = fleet.daemon()
    daemon.register("joy", a_file(1.0))
    daemon.register("joy", a_file(2.0), canary_percent=20.0)
    daemon.register("awe", a_file(1.0))
    daemon.set_policy("max_relative_dose", max_relative_dose=0.5)
    before = everything(daemon)
    made = hotwired("backup", short_dir / "b.tar", "--state-dir", daemon.state_dir)
    assert made.returncode == 0, made.stderr
    assert b"generation 5, 2 blobs" in made.stderr
    assert (short_dir / "b.tar").stat().st_mode & 0o777 == 0o600
    assert daemon.stop() == 0
    other = short_dir / "other"
    back = hotwired("restore", short_dir / "b.tar", "--state-dir", other / "state")
    assert back.returncode == 0, back.stderr
    again = Daemon(other)
    try:
        again.start()
        assert everything(again) == before
        assert again.register("new", a_file(3.0)).generation == 6
    finally:
        again.close()


def test_a_tar_that_tar_can_read(saved: bytes) -> None:
    """A manifest, the database, and blobs named by their digest; the same for the same state."""
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:
        names = tar.getnames()
        assert names[:2] == ["backup.json", "registry.db"]
        assert len(names) == 6
        for member in tar.getmembers()[2:]:
            file = tar.extractfile(member)
            assert file is not None
            assert member.name == f"blobs/{hashlib.sha256(file.read()).hexdigest()}"
            assert (member.mtime, member.uid, member.mode) == (0, 0, 0o600)


def test_the_same_state_makes_the_same_bytes(saved: bytes, tmp_path: Path) -> None:
    """Backup, restore, backup: nothing has changed."""
    restore(io.BytesIO(saved), tmp_path / "s")
    for _ in range(2):
        again = io.BytesIO()
        backup.write(tmp_path / "s", again)
        assert again.getvalue() == saved


def test_through_pipes(saved: bytes, tmp_path: Path) -> None:
    """`-` is stdout and stdin."""
    back = hotwired("restore", "-", "--state-dir", tmp_path / "s", stdin=saved)
    assert back.returncode == 0, back.stderr
    assert hotwired("backup", "-", "--state-dir", tmp_path / "s").stdout == saved


def test_under_load(fleet: Fleet, short_dir: Path) -> None:
    """While names come and go, each backup is whole and of one moment, and no call fails."""
    daemon = fleet.daemon()
    done, failed = threading.Event(), []

    def churn() -> None:
        number = 0
        try:
            while not done.is_set():
                name = f"v{number % 7}"
                daemon.register(name, a_file(float(number), layers=2, width=8))
                if number % 3 == 2:
                    daemon.delete(name)
                number += 1
        except Exception as exc:  # noqa: BLE001 -- shown below
            failed.append(exc)

    thread = threading.Thread(target=churn)
    thread.start()
    eventually(lambda: daemon.generation() > 20)
    seen = []
    for attempt in range(20):
        out = io.BytesIO()
        manifest = backup.write(daemon.state_dir, out)
        state_dir = short_dir / f"s{attempt}"
        assert restore(io.BytesIO(out.getvalue()), state_dir) == manifest
        stored = registry.read(state_dir / "registry.db")
        assert {path.name for path in (state_dir / "blobs").iterdir()} == set(stored.blobs)
        seen.append(manifest.generation)
    done.set()
    thread.join()
    assert not failed
    assert len(set(seen)) > 2, "nothing changed meanwhile"
    assert seen == sorted(seen)
    assert list((daemon.state_dir / ".backup").iterdir()) == []


def test_any_damage_is_found(saved: bytes, tmp_path: Path) -> None:
    """A byte changed or the end cut off at each twentieth of the file, and between: all refused."""
    length = len(saved)
    for at in sorted({length * n // 40 for n in range(40)} | {0, 100, 511, 513, length - 1}):
        flipped = saved[:at] + bytes([saved[at] ^ 0x40]) + saved[at + 1 :]
        for damaged in (flipped, saved[:at]):
            with pytest.raises(BackupInvalid, match="no whole backup"):
                restore(io.BytesIO(damaged), tmp_path / "s")
            assert {path.name for path in (tmp_path / "s").iterdir()} == {"lock"}
    with pytest.raises(BackupInvalid, match="behind its end"):
        restore(io.BytesIO(saved + b"x"), tmp_path / "s")
    restore(io.BytesIO(saved), tmp_path / "s")


def hostile(kind: str) -> tarfile.TarInfo:
    """Returns a member that a careless reader would follow out of its folder."""
    info = tarfile.TarInfo({"path": "../../evil", "absolute": "/tmp/evil"}.get(kind, "registry.db"))
    if kind in {"link", "hard link"}:
        info.type = tarfile.SYMTYPE if kind == "link" else tarfile.LNKTYPE
        info.linkname = "/etc/passwd"
    elif kind == "device":
        info.type = tarfile.CHRTYPE
    elif kind == "sparse":
        info.size = 8 << 30
        return info
    return info


@pytest.mark.parametrize("kind", ["path", "absolute", "link", "hard link", "device", "sparse"])
@pytest.mark.parametrize("first", [True, False])
def test_hostile_members(saved: bytes, tmp_path: Path, kind: str, *, first: bool) -> None:
    """First, or where the database is to be: refused by its header, and nothing is written."""
    head = hostile(kind).tobuf(tarfile.GNU_FORMAT)
    size = int(saved[124:135], 8)
    at = 0 if first else 512 + size + -size % 512
    target = tmp_path / "deep" / "s"
    with pytest.raises(BackupInvalid):
        restore(io.BytesIO(saved[:at] + head + saved[at + 512 :]), target)
    assert {path.name for path in target.iterdir()} == {"lock"}
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}


def test_other_archives(saved: bytes, tmp_path: Path) -> None:
    """Packed again, compressed, or no tar at all."""
    again = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(saved)) as tar,
        tarfile.open(fileobj=again, mode="w:gz") as packed,
    ):
        for member in tar.getmembers():
            packed.addfile(member, tar.extractfile(member))
    for data in (again.getvalue(), b"", b"\0" * 10240, os.urandom(2048)):
        with pytest.raises(BackupInvalid):
            restore(io.BytesIO(data), tmp_path / "s")


def test_a_registry_of_another_state(saved: bytes, tmp_path: Path) -> None:
    """Digests alone would let rows and blobs of two states be put together."""
    reader = Reader(io.BytesIO(saved))
    manifest = reader.manifest()
    wrong = Manifest(manifest.generation + 1, 0, manifest.registry_sha256, manifest.blobs)
    head = wrong.to_bytes()
    assert len(head) != len(manifest.to_bytes())
    other = Manifest(
        manifest.generation + 1,
        manifest.registry_bytes,
        manifest.registry_sha256,
        manifest.blobs,
    ).to_bytes()
    assert len(other) == len(manifest.to_bytes())
    with pytest.raises(BackupInvalid, match="another state"):
        restore(io.BytesIO(saved.replace(manifest.to_bytes(), other)), tmp_path / "s")


def test_a_directory_in_use_is_refused(saved: bytes, fleet: Fleet) -> None:
    """One with a state, or with a daemon; neither is touched."""
    daemon = fleet.daemon()
    daemon.register("joy")
    refused = hotwired("restore", "-", "--state-dir", daemon.state_dir, stdin=saved)
    assert refused.returncode == 1
    assert b"DAEMON_LOCKED" in refused.stderr
    daemon.stop()
    with pytest.raises(StateNotEmpty):
        restore(io.BytesIO(saved), daemon.state_dir)
    assert daemon.start().names() == ["joy"]


def test_after_a_restore_that_was_killed(saved: bytes, tmp_path: Path) -> None:
    """What it left is no state, and the next one begins anew."""
    state_dir = tmp_path / "s"
    for half in (state_dir / ".restore" / "blobs", state_dir / "blobs"):
        half.mkdir(parents=True)
        (half / ("0" * 64)).write_bytes(b"half")
    state_dir.chmod(0o700)
    restore(io.BytesIO(saved), state_dir)
    assert {path.name for path in state_dir.iterdir()} == {"lock", "registry.db", "blobs"}
    assert "0" * 64 not in {path.name for path in (state_dir / "blobs").iterdir()}


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_state_that_is_not_whole_makes_no_backup(saved: bytes, tmp_path: Path, how: str) -> None:
    """The revision is named, and the backup that was there stays."""
    restore(io.BytesIO(saved), tmp_path / "s")
    blob = sorted((tmp_path / "s" / "blobs").iterdir())[1]
    if how == "missing":
        blob.unlink()
    else:
        blob.write_bytes(blob.read_bytes()[:-1] + b"\x99")
    (tmp_path / "b.tar").write_bytes(saved)
    with pytest.raises(BlobCorrupt, match=blob.name):
        backup.to_file(tmp_path / "s", tmp_path / "b.tar")
    assert (tmp_path / "b.tar").read_bytes() == saved
    assert {path.name for path in tmp_path.iterdir()} == {"s", "b.tar"}


def test_no_state_no_backup(tmp_path: Path) -> None:
    """An empty directory, or none, is an error and no file."""
    for state_dir in (tmp_path, tmp_path / "nowhere"):
        made = hotwired("backup", tmp_path / "b.tar", "--state-dir", state_dir)
        assert made.returncode == 1
        assert b"STORE_UNAVAILABLE" in made.stderr
        assert not (tmp_path / "b.tar").exists()


def test_a_backup_of_a_newer_version(
    saved: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused as a newer store is."""
    monkeypatch.setattr("hotwired.migrations.STEPS", ())
    with pytest.raises(StoreTooNew):
        restore(io.BytesIO(saved), tmp_path / "s")
    assert {path.name for path in (tmp_path / "s").iterdir()} == {"lock"}


def test_a_file_system_without_links(
    saved: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blobs are copied aside there."""

    def refuse(*_: object) -> None:
        raise PermissionError

    restore(io.BytesIO(saved), tmp_path / "s")
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    out = io.BytesIO()
    backup.write(tmp_path / "s", out)
    assert out.getvalue() == saved
