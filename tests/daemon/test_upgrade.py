"""A state that the first daemon wrote, served by this one."""

import io
import sqlite3
from pathlib import Path

from hotwired import backup
from hotwired.restore import restore
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.vector_file import canonical_bytes, parse_upload, revision_of
from tests.daemon.harness import Fleet, a_file

SCRIPT = Path(__file__).parents[1] / "data" / "registry-v1.sql"
# What had been registered, and not deleted, with `a_file(value, layers=2, width=4, note=...)`.
FILES = {"calm": (1.0, "first"), "joy": (3.0, "second")}


def first_state(state_dir: Path) -> dict[str, str]:
    """Makes the state directory of the first daemon; returns name -> revision."""
    (state_dir / "blobs").mkdir(parents=True)
    with sqlite3.connect(state_dir / "registry.db") as db:
        db.executescript(SCRIPT.read_text())
    db.close()
    revisions = {}
    for name, (value, note) in FILES.items():
        data = canonical_bytes(parse_upload(a_file(value, layers=2, width=4, note=note)))
        revisions[name] = revision_of(data)
        (state_dir / "blobs" / revisions[name]).write_bytes(data)
    for folder in (state_dir, state_dir / "blobs"):
        folder.chmod(0o700)
    return revisions


def test_it_is_served_and_goes_on(fleet: Fleet) -> None:
    """Names, revisions and policy are there, nodes get them, and the next change is the eighth."""
    revisions = first_state(fleet.root / "state")
    daemon, instance = fleet.daemon(), fleet.instance(hidden_size=4, num_layers=2)
    assert {name: daemon.get(name).revision for name in daemon.names()} == revisions
    policy = daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5).policy
    assert (policy.max_relative_dose, policy.strict) == (0.5, True)
    assert dict(policy.reference_norms) == {0: 10.0, 1: 12.5}
    daemon.wait_for(3)
    assert instance.held() == set(revisions.values())
    assert set(instance.snapshot().vectors) == set(revisions)
    assert daemon.register("new", a_file(5.0, layers=2, width=4)).generation == 8


def test_it_can_be_saved_and_restored(tmp_path: Path) -> None:
    """Before any daemon of this version has opened it, too."""
    revisions = first_state(tmp_path / "s")
    out = io.BytesIO()
    manifest = backup.write(tmp_path / "s", out)
    assert (manifest.generation, set(manifest.blobs)) == (7, set(revisions.values()))
    out.seek(0)
    assert restore(out, tmp_path / "r") == manifest
