"""The durable registry: names, policy, generation and audit trail, in one SQLite file.

WAL with synchronous=FULL: what a call has returned survives a crash and a power cut. Each change
is one transaction that moves the generation by one.
"""

import errno
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from google.protobuf.message import DecodeError

from hotwired import policy as policies
from hotwired.errors import (
    HotwireError,
    StoreCorrupt,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
)
from hotwired.v1 import policy_pb2, vector_pb2

SCHEMA_VERSION = 1
FIRST_GENERATION = 1

# The disk, the user's quota, the process's limit.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_SCHEMA = """
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER NOT NULL, policy BLOB NOT NULL
);
CREATE TABLE vectors (
    name TEXT PRIMARY KEY, revision TEXT NOT NULL, record BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, generation INTEGER NOT NULL,
    action TEXT NOT NULL, peer TEXT NOT NULL, vector TEXT NOT NULL, old TEXT NOT NULL,
    new TEXT NOT NULL, detail TEXT NOT NULL
);
"""


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


class Registry:
    """The database at a path. To be used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = 0
        self._db: sqlite3.Connection | None = None

    def open(self, *, may_create: bool) -> Stored:
        """Opens the database and returns what it holds.

        may_create: whether a new one is in order; if not, a missing or empty file is refused.
        Raises StoreCorrupt or StoreTooNew and leaves the file as it is, or StoreUnavailable.
        """
        if not may_create and (not self.path.exists() or self.path.stat().st_size == 0):
            raise StoreCorrupt(
                f"{self.path} is missing or empty, but there are blobs: restore it, or remove "
                f"the blobs to start anew",
                metadata={"path": str(self.path)},
            )
        with self._translated():
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._check_version(self._db)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._create(self._db)
            self._inode = self.path.stat().st_ino
            return self._load(self._db)

    def close(self) -> None:
        """Closes the database."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def apply(self, change: Change) -> None:
        """Stores a change, wholly or not at all.

        Raises StoreFull, StoreUnavailable, or StoreCorrupt if the database is damaged.
        """
        with self._translated(), self._transaction() as db:
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

    def _check_version(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        metadata = {"path": str(self.path), "version": str(version)}
        if version > SCHEMA_VERSION:
            raise StoreTooNew(
                f"{self.path} has schema {version}; this version knows {SCHEMA_VERSION}",
                metadata=metadata,
            )
        if version == 0 and tables:
            raise StoreCorrupt(f"{self.path} is not hotwired's database", metadata=metadata)
        if problems := [row[0] for row in db.execute("PRAGMA quick_check(1)") if row[0] != "ok"]:
            raise StoreCorrupt(f"{self.path} is damaged: {problems[0]}", metadata=metadata)

    def _create(self, db: sqlite3.Connection) -> None:
        if db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
            return
        policy = policies.stamped(policies.default(), FIRST_GENERATION, _now().timestamp())
        # The version is in the same transaction: a crash leaves an empty file or a whole one.
        db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version={SCHEMA_VERSION};")
        db.execute(
            "INSERT INTO state VALUES (1, ?, ?)", (FIRST_GENERATION, policy.SerializeToString())
        )
        db.execute("COMMIT")

    def _load(self, db: sqlite3.Connection) -> Stored:
        row = db.execute("SELECT generation, policy FROM state").fetchone()
        if row is None:
            raise StoreCorrupt(f"{self.path} has no state", metadata={"path": str(self.path)})
        records = db.execute("SELECT record FROM vectors ORDER BY name").fetchall()
        return Stored(
            generation=row[0],
            policy=policy_pb2.Policy.FromString(row[1]),
            vectors=tuple(vector_pb2.Vector.FromString(record) for (record,) in records),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # SQLite would go on writing to a file that was deleted, and tell everyone all is well.
        if self._db is None or self.path.stat().st_ino != self._inode:
            raise StoreUnavailable(f"{self.path} was replaced", metadata={"path": str(self.path)})
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, DecodeError) as exc:
            raise translated(exc, self.path) from exc


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
