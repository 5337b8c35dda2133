"""The registry's schema, as numbered steps: step N makes version N of what version N - 1 left.

A released step is never changed: tests/data has a registry of each released version, which must
come through all that follow.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from hotwired.durable import sync
from hotwired.errors import StoreCorrupt, StoreTooNew

Step = Callable[[sqlite3.Connection], None]


def _tables(db: sqlite3.Connection) -> None:
    db.execute("""
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER NOT NULL, policy BLOB NOT NULL
)""")
    db.execute("""
CREATE TABLE vectors (
    name TEXT PRIMARY KEY, revision TEXT NOT NULL, record BLOB NOT NULL
) WITHOUT ROWID""")
    db.execute("""
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, generation INTEGER NOT NULL,
    action TEXT NOT NULL, peer TEXT NOT NULL, vector TEXT NOT NULL, old TEXT NOT NULL,
    new TEXT NOT NULL, detail TEXT NOT NULL
)""")


STEPS: tuple[Step, ...] = (_tables,)
"""In order; the first makes version 1 of an empty database."""


def newest() -> int:
    """Returns the version that this code reads and writes."""
    return len(STEPS)


def version_of(db: sqlite3.Connection) -> int:
    """Returns the version of a database, 0 if it is empty."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def check(db: sqlite3.Connection, path: Path) -> None:
    """Raises StoreTooNew, or StoreCorrupt if the database isn't ours or is damaged."""
    version = version_of(db)
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    metadata = {"path": str(path), "version": str(version)}
    if version > newest():
        raise StoreTooNew(
            f"{path} has schema {version}; this version knows {newest()}", metadata=metadata
        )
    if version == 0 and tables:
        raise StoreCorrupt(f"{path} is not hotwired's database", metadata=metadata)
    if problems := [row[0] for row in db.execute("PRAGMA quick_check(1)") if row[0] != "ok"]:
        raise StoreCorrupt(f"{path} is damaged: {problems[0]}", metadata=metadata)


def create(db: sqlite3.Connection, fill: Step) -> None:
    """Makes the newest schema in an empty database, with what fill puts there.

    In one transaction: a crash leaves an empty file or a whole one.
    """
    with transaction(db):
        for step in STEPS:
            step(db)
        fill(db)
        _mark(db, newest())


def upgrade(db: sqlite3.Connection) -> None:
    """Brings a database to the newest schema, each step in a transaction of its own."""
    for number in range(version_of(db) + 1, newest() + 1):
        with transaction(db):
            STEPS[number - 1](db)
            _mark(db, number)


def keep_copy(db: sqlite3.Connection, path: Path) -> Path:
    """Copies the database at path to <path>.schema-<version>, durably, and returns that path."""
    copy = path.with_name(f"{path.name}.schema-{version_of(db)}")
    partial = copy.with_name(f".partial-{copy.name}")
    partial.unlink(missing_ok=True)
    copy_to(db, partial)
    sync(partial)
    partial.rename(copy)
    sync(copy.parent)
    return copy


def copy_to(db: sqlite3.Connection, path: Path) -> None:
    """Writes the database, as it is at one moment, to a new file at path with mode 0600."""
    path.touch(mode=0o600, exist_ok=False)
    with contextlib.closing(sqlite3.connect(path)) as target:
        db.backup(target)


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Does what is within wholly or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _mark(db: sqlite3.Connection, version: int) -> None:
    db.execute(f"PRAGMA user_version={version}")
