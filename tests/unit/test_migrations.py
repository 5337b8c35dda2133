"""From each released schema to the newest, step by step, with everything intact."""

import sqlite3
from pathlib import Path

import pytest

from hotwired import migrations, registry
from hotwired.errors import StoreUnavailable
from hotwired.registry import Registry, Stored

DATA = Path(__file__).parents[1] / "data"
RELEASED = sorted(DATA.glob("registry-v*.sql"))
TABLES = ("state", "vectors", "audit")


def made(path: Path, script: Path = DATA / "registry-v1.sql") -> Path:
    """Makes the database of a released version."""
    with sqlite3.connect(path) as db:
        db.executescript(script.read_text())
    db.close()
    return path


def opened(path: Path) -> Stored:
    """Opens a registry as the daemon does, and closes it."""
    found = Registry(path)
    stored = found.open(may_create=False)
    found.close()
    return stored


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Returns all rows of the tables that the first version had."""
    db = sqlite3.connect(path)
    found = {table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES}
    db.close()
    return found


def schema(path: Path) -> list[tuple[str, str]]:
    """Returns the tables and what they were made with, white space aside."""
    db = sqlite3.connect(path)
    found = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY 1")
    result = [(name, "".join(sql.split())) for name, sql in found]
    db.close()
    return result


def version(path: Path) -> int:
    """Returns a file's version."""
    db = sqlite3.connect(path)
    found = migrations.version_of(db)
    db.close()
    return found


def add_owner(db: sqlite3.Connection) -> None:
    """A step as a later version may have it."""
    db.execute("ALTER TABLE vectors ADD COLUMN owner TEXT NOT NULL DEFAULT ''")
    db.execute("UPDATE vectors SET owner = name || '@' || (SELECT generation FROM state)")


def add_index(db: sqlite3.Connection) -> None:
    """Another."""
    db.execute("CREATE INDEX by_owner ON vectors (owner)")


def fail_midway(db: sqlite3.Connection) -> None:
    """One that does half of its work."""
    db.execute("DELETE FROM vectors")
    db.execute("INSERT INTO nowhere VALUES (1)")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of the code with two more steps."""
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, add_owner, add_index))


def check_first_release(stored: Stored) -> None:
    """What the first daemon had been told, as it answered then."""
    assert stored.generation == 7
    assert [(v.name, v.hidden_size, v.norms[0]) for v in stored.vectors] == [
        ("calm", 4, 2.0),
        ("joy", 4, 6.0),
    ]
    assert [dict(v.metadata) for v in stored.vectors] == [{"note": "first"}, {"note": "second"}]
    assert not any(v.disabled or v.HasField("canary") for v in stored.vectors)
    assert (stored.policy.max_relative_dose, stored.policy.strict) == (0.5, True)
    assert dict(stored.policy.reference_norms) == {0: 10.0, 1: 12.5}


def test_there_is_a_registry_of_each_version() -> None:
    """A version is released with its registry, made by it, in tests/data."""
    assert [path.stem for path in RELEASED] == [
        f"registry-v{number}" for number in range(1, migrations.newest() + 1)
    ]


@pytest.mark.parametrize("script", RELEASED, ids=lambda path: path.stem)
def test_a_released_registry_comes_through(tmp_path: Path, script: Path) -> None:
    """It is opened at the newest version, and then has the schema of a fresh one."""
    path = made(tmp_path / "registry.db", script)
    opened(path)
    fresh = Registry(tmp_path / "fresh.db")
    fresh.open(may_create=True)
    fresh.close()
    assert version(path) == version(tmp_path / "fresh.db") == migrations.newest()
    assert schema(path) == schema(tmp_path / "fresh.db")


def test_from_the_first_release_everything_is_intact(tmp_path: Path) -> None:
    """Vectors, policy, generation and the audit trail, to the byte."""
    path = made(tmp_path / "registry.db")
    before = rows(path)
    check_first_release(opened(path))
    assert rows(path) == before
    assert [row[3] for row in before["audit"]] == [
        "register", "register", "register", "register", "delete", "set_policy",
    ]  # fmt: skip


@pytest.mark.usefixtures("later")
def test_steps_are_taken_in_order(tmp_path: Path) -> None:
    """Each sees what the one before it made; a copy of what was there stays beside it."""
    path = made(tmp_path / "registry.db")
    before = rows(path)
    check_first_release(opened(path))
    assert version(path) == 3
    db = sqlite3.connect(path)
    assert db.execute("SELECT owner FROM vectors").fetchall() == [("calm@7",), ("joy@7",)]
    db.close()
    copy = tmp_path / "registry.db.schema-1"
    assert (version(copy), rows(copy)) == (1, before)
    assert copy.stat().st_mode & 0o777 == 0o600
    copied = copy.read_bytes()
    check_first_release(opened(path))
    assert copy.read_bytes() == copied
    assert {p.name for p in tmp_path.iterdir()} == {"registry.db", "registry.db.schema-1"}


@pytest.mark.usefixtures("later")
def test_a_fresh_registry_takes_all_steps(tmp_path: Path) -> None:
    """It has the same schema as one that was upgraded, and no copy."""
    found = Registry(tmp_path / "registry.db")
    assert found.open(may_create=True).generation == registry.FIRST_GENERATION
    found.close()
    made(tmp_path / "old.db")
    opened(tmp_path / "old.db")
    assert schema(tmp_path / "registry.db") == schema(tmp_path / "old.db")
    assert not (tmp_path / "registry.db.schema-0").exists()


def test_a_step_that_fails_leaves_what_the_last_one_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wholly or not at all; once it is mended, the next start goes on from there."""
    path = made(tmp_path / "registry.db")
    before = rows(path)["audit"]
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, add_owner, fail_midway))
    with pytest.raises(StoreUnavailable, match="nowhere"):
        Registry(path).open(may_create=False)
    assert version(path) == 2
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS[:2], add_index))
    check_first_release(opened(path))
    assert rows(path)["audit"] == before
    assert version(tmp_path / "registry.db.schema-1") == 1
    assert version(tmp_path / "registry.db.schema-2") == 2


@pytest.mark.usefixtures("later")
def test_reading_changes_nothing(tmp_path: Path) -> None:
    """A copy, such as a backup's, is upgraded in memory alone."""
    path = made(tmp_path / "registry.db")
    before = path.read_bytes()
    check_first_release(registry.read(path))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
