"""A registry that is damaged, newer, full or gone: what is left is served, nothing made up."""

import resource
import sqlite3

from tests.daemon.harness import Fleet, a_file, eventually, failed_start, refused


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
