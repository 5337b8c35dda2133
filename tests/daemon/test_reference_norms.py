"""Reference norms that say which model they are of, in a daemon that serves several."""

from tests.daemon.harness import HIDDEN, LAYERS, Fleet, refused


def test_reference_norms_of_another_model(fleet: Fleet) -> None:
    """Refused while such a model is served; one that comes later gets none, and no less else."""
    daemon = fleet.daemon()
    instance = fleet.instance()
    daemon.wait_for(3)
    norms = {1: 2.0}
    wrong = f"{LAYERS}x{HIDDEN * 2}-0123456789abcdef"
    fields = {"reference_norms": norms, "reference_norms_fingerprint": wrong}
    before = daemon.generation()
    found = refused(lambda: daemon.set_policy(**fields))
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "REFERENCE_NORMS_MISMATCH")
    assert found.fields == ["policy.reference_norms"]
    assert found.metadata["expected"] == f"{LAYERS}x{HIDDEN}"
    assert daemon.generation() == before
    right = f"{LAYERS}x{HIDDEN}-0123456789abcdef"
    fields["reference_norms_fingerprint"] = right
    assert daemon.set_policy(max_relative_dose=0.5, **fields).converged
    wide = fleet.instance("wide", hidden_size=HIDDEN * 2)
    daemon.wait_for(6)
    assert dict(instance.snapshot().policy.dose.reference_norms) == norms
    assert dict(wide.snapshot().policy.dose.reference_norms) == {}
    assert wide.snapshot().policy.dose.max_relative_dose == 0.5
    assert daemon.set_policy("kill_switch", kill_switch=True).converged
    assert wide.snapshot().policy.kill_switch
