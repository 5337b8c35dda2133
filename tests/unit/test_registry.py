"""The database: durable, whole or not at all, and never overwritten when in doubt."""

import sqlite3
import struct
from pathlib import Path

import pytest

from hotwired.errors import StoreCorrupt, StoreFull, StoreTooNew, StoreUnavailable
from hotwired.registry import Audit, Change, Registry, Stored
from hotwired.v1.policy_pb2 import DOSE_MODE_REJECT, Policy
from hotwired.v1.vector_pb2 import Vector


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database's path."""
    return tmp_path / "registry.db"


def opened(path: Path) -> tuple[Registry, Stored]:
    """Opens a registry."""
    registry = Registry(path)
    return registry, registry.open(may_create=True)


def a_change(generation: int, name: str = "joy") -> Change:
    """Returns the registration of a name."""
    vector = Vector(name=name, revision="r" * 64, norms=[1.0])
    return Change(generation, Audit("register", "unix:", name, new="r" * 64), put=vector)


def contents(path: Path) -> Stored:
    """Reads a registry as a new process would."""
    registry, stored = opened(path)
    registry.close()
    return stored


def test_a_fresh_store_is_at_generation_one(path: Path) -> None:
    """It has the default policy with an etag, and no vectors."""
    stored = contents(path)
    assert (stored.generation, stored.vectors) == (1, ())
    assert stored.policy.dose_mode == DOSE_MODE_REJECT
    assert stored.policy.etag


def test_changes_are_there_again(path: Path) -> None:
    """Vectors, deletions, policy and generation survive."""
    registry, _ = opened(path)
    registry.apply(a_change(2, "joy"))
    registry.apply(a_change(3, "awe"))
    registry.apply(Change(4, Audit("delete", "unix:", "joy"), delete="joy"))
    policy = Policy(kill_switch=True, etag="e")
    registry.apply(Change(9, Audit("set_policy", "unix:"), policy=policy))
    registry.close()
    stored = contents(path)
    assert stored.generation == 9
    assert stored.policy == policy
    assert [vector.name for vector in stored.vectors] == ["awe"]


def test_records_from_before_flags_and_canaries_are_read(path: Path) -> None:
    """The fields they lack are unset: enabled, never expiring, without a canary."""
    registry, _ = opened(path)
    registry.apply(a_change(2))
    # name, revision, norms: written by hand as the first version wrote them.
    old = b"\x0a\x03joy\x12\x40" + b"r" * 64 + b"\x3a\x08" + struct.pack("<d", 1.0)
    assert registry._db is not None
    registry._db.execute("UPDATE vectors SET record = ?", (old,))
    registry.close()
    (vector,) = contents(path).vectors
    assert vector == Vector(name="joy", revision="r" * 64, norms=[1.0])
    assert not vector.disabled
    assert not vector.HasField("expire_time")
    assert not vector.HasField("canary")


def test_flags_and_canaries_are_there_again(path: Path) -> None:
    """They are part of the record."""
    registry, _ = opened(path)
    canary = {"revision": "s" * 64, "percent": 5.0, "norms": [2.0]}
    vector = Vector(name="joy", disabled=True, expire_time={"seconds": 9}, canary=canary)
    registry.apply(Change(2, Audit("update", "p", "joy"), put=vector))
    registry.close()
    assert contents(path).vectors == (vector,)


def test_every_change_is_audited(path: Path) -> None:
    """Who, what, from what to what, at which generation: in order, in the store."""
    registry, _ = opened(path)
    registry.apply(a_change(2))
    detail = {"strict": "true"}
    registry.apply(Change(3, Audit("set_policy", "p", old="a", new="b", detail=detail)))
    trail = registry.audit_trail()
    assert [record[1:7] for record in trail] == [
        (2, "register", "unix:", "joy", "", "r" * 64),
        (3, "set_policy", "p", "", "a", "b"),
    ]
    assert trail[1][7] == '{"strict": "true"}'
    registry.close()


def test_it_is_durable_by_its_settings(path: Path) -> None:
    """WAL with synchronous=FULL: a committed change survives a power cut."""
    registry, _ = opened(path)
    assert registry._db is not None
    assert registry._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert registry._db.execute("PRAGMA synchronous").fetchone() == (2,)
    registry.close()


def test_a_generation_never_goes_back(path: Path) -> None:
    """A change that is not newer is refused and nothing of it stays."""
    registry, _ = opened(path)
    registry.apply(a_change(5))
    with pytest.raises(StoreCorrupt):
        registry.apply(a_change(5, "awe"))
    assert len(registry.audit_trail()) == 1
    registry.close()
    assert [vector.name for vector in contents(path).vectors] == ["joy"]


def test_a_newer_schema_is_refused_untouched(path: Path) -> None:
    """An older daemon must not touch what it doesn't know."""
    contents(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=r"registry\.db has schema 99"):
        Registry(path).open(may_create=True)
    assert path.read_bytes() == before


def test_a_damaged_database_is_refused_untouched(path: Path) -> None:
    """The file is named and left as it is, never made anew."""
    contents(path)
    damaged = bytearray(path.read_bytes())
    damaged[:100] = b"x" * 100
    path.write_bytes(damaged)
    with pytest.raises(StoreCorrupt, match=r"registry\.db"):
        Registry(path).open(may_create=True)
    assert path.read_bytes() == damaged


def test_damage_within_is_found(path: Path) -> None:
    """Not only the header is looked at."""
    registry, _ = opened(path)
    for generation in range(2, 60):
        registry.apply(a_change(generation, f"v{generation}"))
    registry.close()
    damaged = bytearray(path.read_bytes())
    for page in range(1, len(damaged) // 4096):
        damaged[page * 4096 : page * 4096 + 64] = b"\xee" * 64
    path.write_bytes(damaged)
    with pytest.raises(StoreCorrupt):
        Registry(path).open(may_create=True)


def test_another_programs_database_is_refused(path: Path) -> None:
    """Tables that aren't ours mean that the path is wrong."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(StoreCorrupt):
        Registry(path).open(may_create=True)


def test_a_missing_database_beside_blobs_is_not_made_anew(path: Path) -> None:
    """Making one would take all blobs for orphans and remove them."""
    with pytest.raises(StoreCorrupt, match="restore"):
        Registry(path).open(may_create=False)
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreCorrupt, match="restore"):
        Registry(path).open(may_create=False)


def test_a_record_that_cannot_be_read_is_damage(path: Path) -> None:
    """Rows are checked as they are read."""
    registry, _ = opened(path)
    registry.apply(a_change(2))
    registry.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE vectors SET record = x'ffff'")
    db.close()
    with pytest.raises(StoreCorrupt):
        Registry(path).open(may_create=True)


def test_a_full_disk_is_store_full_and_passes(path: Path) -> None:
    """A change that doesn't fit leaves the old state; with room, the next one goes through."""
    registry, _ = opened(path)
    assert registry._db is not None
    (pages,) = registry._db.execute("PRAGMA page_count").fetchone()
    registry._db.execute(f"PRAGMA max_page_count = {pages}")
    big = Vector(name="big", revision="r", metadata={"a": "x" * 20_000})
    with pytest.raises(StoreFull):
        registry.apply(Change(2, Audit("register", "p", "big"), put=big))
    registry._db.execute("PRAGMA max_page_count = 100000")
    registry.apply(Change(2, Audit("register", "p", "big"), put=big))
    registry.close()
    assert contents(path).generation == 2


def test_a_deleted_database_is_not_written_to(path: Path) -> None:
    """SQLite would write to the deleted file and report success."""
    registry, _ = opened(path)
    path.unlink()
    with pytest.raises(StoreUnavailable):
        registry.apply(a_change(2))
    registry.close()


def test_an_unwritable_place_is_unavailable_not_corrupt(tmp_path: Path) -> None:
    """A path that can't be opened says nothing about a database."""
    with pytest.raises(StoreUnavailable):
        Registry(tmp_path / "nowhere" / "registry.db").open(may_create=True)
