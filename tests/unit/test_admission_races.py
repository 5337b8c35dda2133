"""Admissions and commits beside each other, in threads."""

import threading
from typing import Any

import pytest

from hotwire_plugin.admission import Admission
from hotwire_plugin.program import PROGRAM_KEY, SPEC_KEY, Program
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import EnginePolicy, Snapshot, SnapshotHolder, VectorMeta
from tests.support.admissions import JOY, LAYERS, VECTORS


def test_a_revision_is_on_record_before_a_commit_that_drops_it_returns() -> None:
    """Admissions and commits race; whoever gets a revision is seen by a report after the commit."""
    holder = SnapshotHolder()
    subject = Admission(holder, ModelShape(LAYERS), lambda: None)
    stop, failures = threading.Event(), list[str]()
    got: dict[str, str] = {}

    def admit_all(thread: int) -> None:
        for n in range(100_000):
            if stop.is_set():
                return
            request = f"{thread}-{n}"
            args = subject.admit({SPEC_KEY: '{"id": "joy"}'}, request).extra_args or {}
            if PROGRAM_KEY in args:
                got[request] = Program.decode(args[PROGRAM_KEY]).ops[0].revision
            subject.finish(f"{thread}-{n - 50}")
            got.pop(f"{thread}-{n - 50}", None)

    threads = [threading.Thread(target=admit_all, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for generation in range(1, 200):
        revision = f"{generation:064x}"
        vectors = {"joy": VectorMeta("joy", revision, (1,), (1.0,))}
        holder.commit(Snapshot(generation, vectors, EnginePolicy()))
        in_use = subject.revisions_in_use()
        # A program made after this commit has its revision: no older one appears any more.
        later = subject.revisions_in_use() - in_use - {revision}
        failures += sorted(later)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert set(got.values()) <= subject.revisions_in_use()


def test_a_commit_waits_for_an_admission_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """An admission that has read the old snapshot is on record before the commit returns."""
    holder = SnapshotHolder(Snapshot(1, VECTORS, EnginePolicy()))
    subject = Admission(holder, ModelShape(LAYERS), lambda: None)
    about_to_record, go_on = threading.Event(), threading.Event()
    record = subject._ledger.record

    def record_late(*args: Any) -> None:
        about_to_record.set()
        go_on.wait(10)
        record(*args)

    monkeypatch.setattr(subject._ledger, "record", record_late)
    seen: list[set[str]] = []

    def commit() -> None:
        holder.commit(Snapshot(2, {}, EnginePolicy()))
        seen.append(subject.revisions_in_use())

    admitting = threading.Thread(target=subject.admit, args=({SPEC_KEY: '{"id": "joy"}'}, "r"))
    committing = threading.Thread(target=commit)
    admitting.start()
    about_to_record.wait(10)
    committing.start()
    committing.join(0.1)
    assert seen == []
    go_on.set()
    admitting.join()
    committing.join()
    assert seen == [{JOY}]
