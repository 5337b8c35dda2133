"""The durable registry: names, policy, generation and audit trail, in one SQLite file.

WAL with synchronous=FULL: what a call has returned survives a crash and a power cut. Each change
is one transaction that moves the generation by one.
"""

import errno
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from google.protobuf.message import DecodeError

from hotwired import migrations
from hotwired import policy as policies
from hotwired.errors import HotwireError, StoreCorrupt, StoreFull, StoreUnavailable
from hotwired.log import get
from hotwired.v1 import policy_pb2, vector_pb2

FIRST_GENERATION = 1

# The disk, the user's quota, the process's limit.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Audit:
    """Who changed what.

    action: "register", "register_canary", "update", "delete", "set_policy" or "overtake".
    peer: the caller, as gRPC names it. caller: as the configuration does; stored with the detail.
    vector: its name, if one. old, new: revision or etag before and after. detail: more, for JSON.
    """

    action: str
    peer: str
    vector: str = ""
    old: str = ""
    new: str = ""
    detail: Mapping[str, str] = field(default_factory=dict)
    caller: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the desired state, and the generation it makes."""

    generation: int
    audit: Audit
    put: vector_pb2.Vector | None = None
    delete: str = ""
    policy: policy_pb2.Policy | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """All that is stored."""

    generation: int
    policy: policy_pb2.Policy
    vectors: tuple[vector_pb2.Vector, ...]

    @property
    def blobs(self) -> dict[str, int]:
        """The bytes of each revision that vectors point to or have as their canary."""
        sizes = {vector.revision: vector.size_bytes for vector in self.vectors}
        canaries = (vector.canary for vector in self.vectors if vector.HasField("canary"))
        return sizes | {canary.revision: canary.size_bytes for canary in canaries}


class Registry:
    """The database at a path. To be used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = 0
        self._db: sqlite3.Connection | None = None

    def open(self, *, may_create: bool) -> Stored:
        """Opens the database and returns what it holds.

        may_create: whether a new one is in order; if not, a missing or empty file is refused.
        One of an older schema is brought to ours; a copy of it stays beside it. Raises StoreCorrupt
        or StoreTooNew and leaves the file as it is, or StoreUnavailable.
        """
        if not may_create and (not self.path.exists() or self.path.stat().st_size == 0):
            raise StoreCorrupt(
                f"{self.path} is missing or empty, but there are blobs: restore it, or remove "
                f"the blobs to start anew",
                metadata={"path": str(self.path)},
            )
        with _translated(self.path):
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            migrations.check(self._db, self.path)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._bring_to_schema(self._db)
            self._inode = self.path.stat().st_ino
            return _load(self._db, self.path)

    def close(self) -> None:
        """Closes the database."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def apply(self, change: Change) -> None:
        """Stores a change, wholly or not at all.

        Raises StoreFull, StoreUnavailable, or StoreCorrupt if the database is damaged.
        """
        with _translated(self.path), self._transaction() as db:
            moved = db.execute(
                "UPDATE state SET generation = ? WHERE generation < ?",
                (change.generation, change.generation),
            )
            if moved.rowcount != 1:
                raise StoreCorrupt(
                    f"{self.path} is at generation {change.generation} or later already",
                    metadata={"path": str(self.path)},
                )
            _write(db, change)

    def audit_trail(self) -> list[tuple[str | int, ...]]:
        """Returns all audit records, oldest first: the columns of the table after the id."""
        if self._db is None:
            return []
        return self._db.execute(
            "SELECT time, generation, action, peer, vector, old, new, detail FROM audit ORDER BY id"
        ).fetchall()

    def _bring_to_schema(self, db: sqlite3.Connection) -> None:
        before = migrations.version_of(db)
        if before == 0:
            migrations.create(db, _fill)
        elif before < migrations.newest():
            copy = migrations.keep_copy(db, self.path)
            migrations.upgrade(db)
            get().info(
                "registry upgraded",
                path=str(self.path),
                schema=migrations.newest(),
                schema_before=before,
                copy=str(copy),
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # SQLite would go on writing to a file that was deleted, and tell everyone all is well.
        if self._db is None or self.path.stat().st_ino != self._inode:
            raise StoreUnavailable(f"{self.path} was replaced", metadata={"path": str(self.path)})
        with migrations.transaction(self._db):
            yield self._db


def read(path: Path) -> Stored:
    """Returns what a database holds that nobody has open; neither it nor its folder is changed.

    Raises StoreTooNew, StoreCorrupt or StoreUnavailable.
    """
    uri = f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
    with (
        _translated(path),
        closing(sqlite3.connect(uri, uri=True)) as db,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as scratch,
    ):
        migrations.check(db, path)
        if migrations.version_of(db) == 0:
            raise StoreCorrupt(f"{path} is empty", metadata={"path": str(path)})
        db.backup(scratch)
        migrations.upgrade(scratch)
        return _load(scratch, path)


def _fill(db: sqlite3.Connection) -> None:
    policy = policies.stamped(policies.default(), FIRST_GENERATION, _now().timestamp())
    db.execute("INSERT INTO state VALUES (1, ?, ?)", (FIRST_GENERATION, policy.SerializeToString()))


def _load(db: sqlite3.Connection, path: Path) -> Stored:
    row = db.execute("SELECT generation, policy FROM state").fetchone()
    if row is None:
        raise StoreCorrupt(f"{path} has no state", metadata={"path": str(path)})
    records = db.execute("SELECT record FROM vectors ORDER BY name").fetchall()
    return Stored(
        generation=row[0],
        policy=policy_pb2.Policy.FromString(row[1]),
        vectors=tuple(vector_pb2.Vector.FromString(record) for (record,) in records),
    )


def _write(db: sqlite3.Connection, change: Change) -> None:
    if change.put is not None:
        db.execute(
            "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
            (change.put.name, change.put.revision, change.put.SerializeToString()),
        )
    if change.delete:
        db.execute("DELETE FROM vectors WHERE name = ?", (change.delete,))
    if change.policy is not None:
        db.execute("UPDATE state SET policy = ?", (change.policy.SerializeToString(),))
    audit = change.audit
    db.execute(
        "INSERT INTO audit (time, generation, action, peer, vector, old, new, detail)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            _now().isoformat(),
            change.generation,
            audit.action,
            audit.peer,
            audit.vector,
            audit.old,
            audit.new,
            json.dumps(_detail(audit), sort_keys=True),
        ),
    )


def _detail(audit: Audit) -> dict[str, str]:
    return {**audit.detail, "caller": audit.caller} if audit.caller else dict(audit.detail)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, DecodeError) as exc:
        raise translated(exc, path) from exc


def translated(exc: Exception, path: Path) -> HotwireError:
    """Returns what an error of SQLite, protobuf or the system means for a caller.

    StoreFull, StoreCorrupt if the file at path is damaged, else StoreUnavailable.
    """
    metadata = {"path": str(path), "error": str(exc)}
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or getattr(exc, "errno", 0) in _FULL:
        return StoreFull(f"no space left for {path}", metadata=metadata)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(exc, DecodeError):
        return StoreCorrupt(f"{path} is damaged: {exc}", metadata=metadata)
    return StoreUnavailable(f"{path} can't be used: {exc}", metadata=metadata)


def _now() -> datetime:
    return datetime.now(UTC)
