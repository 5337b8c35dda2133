"""A policy: what it may say, what a mask changes, when an etag refuses."""

import math

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hotwired import policy
from hotwired.errors import EtagMismatch, FieldMaskInvalid, PolicyInvalid
from hotwired.v1.policy_pb2 import (
    DEFAULT_MODE_FALLBACK,
    DOSE_MODE_CLAMP,
    DOSE_MODE_REJECT,
    DOSE_MODE_UNSPECIFIED,
    DOSE_MODE_WARN,
    Policy,
)
from hotwired.v1.steering_service_pb2 import SetPolicyRequest

CURRENT = policy.stamped(
    Policy(dose_mode=DOSE_MODE_WARN, max_relative_dose=0.5, reference_norms={1: 2.0}), 3, 1.0
)


def change(wanted: Policy, *paths: str) -> Policy:
    """Returns CURRENT as changed by a request."""
    mask = FieldMask(paths=paths) if paths else None
    return policy.updated(CURRENT, SetPolicyRequest(policy=wanted, update_mask=mask))


def test_the_default_limits_nothing() -> None:
    """A fresh store steers, and rejects only what a limit yet to come forbids."""
    fresh = policy.default()
    assert fresh == Policy(dose_mode=DOSE_MODE_REJECT, default_mode=DEFAULT_MODE_FALLBACK)


def test_without_a_mask_everything_is_replaced() -> None:
    """What the request leaves unset is unset, and an unspecified mode is the strictest."""
    off = change(Policy(kill_switch=True))
    assert off.kill_switch
    off.kill_switch = False
    assert off == change(Policy(), "*") == policy.default()


def test_a_mask_changes_its_fields_only() -> None:
    """The others stay as they are, limits and norms too."""
    changed = change(Policy(kill_switch=True, max_relative_dose=9.0), "kill_switch")
    assert changed.kill_switch
    assert (changed.max_relative_dose, changed.dose_mode) == (0.5, DOSE_MODE_WARN)
    assert dict(changed.reference_norms) == {1: 2.0}


def test_a_fingerprint_goes_with_its_norms() -> None:
    """It is set with them, stays when others change, and goes when they do."""
    mark = "4x8-0123456789abcdef"
    marked = change(Policy(reference_norms={1: 2.0}, reference_norms_fingerprint=mark))
    assert marked.reference_norms_fingerprint == mark

    def later(*paths: str) -> Policy:
        request = SetPolicyRequest(policy={"reference_norms": {2: 3.0}})
        request.update_mask.paths.extend(paths)
        return policy.updated(marked, request)

    assert later("kill_switch").reference_norms_fingerprint == mark
    assert not later("reference_norms").HasField("reference_norms_fingerprint")
    assert not later().HasField("reference_norms_fingerprint")
    assert policy.same_norms(marked, later("kill_switch"))
    assert not policy.same_norms(marked, later("reference_norms_fingerprint"))


@pytest.mark.parametrize(
    ("norms", "mark", "message"),
    [
        ({1: 2.0}, "4x8", "not of the form"),
        ({1: 2.0}, "", "not of the form"),
        ({}, "4x8-0123456789abcdef", "no reference_norms"),
        ({4: 2.0}, "4x8-0123456789abcdef", "has layer 4, the model 4 layers"),
    ],
)
def test_a_fingerprint_that_cannot_be_the_norms_is_refused(
    norms: dict[int, float], mark: str, message: str
) -> None:
    """Malformed, of nothing, or of a model with fewer layers."""
    with pytest.raises(PolicyInvalid, match=message):
        change(Policy(reference_norms=norms, reference_norms_fingerprint=mark))


def test_a_masked_field_that_is_unset_is_cleared() -> None:
    """So a limit is lifted, and norms are replaced as a whole."""
    changed = change(Policy(reference_norms={5: 1.0}), "max_relative_dose", "reference_norms")
    assert not changed.HasField("max_relative_dose")
    assert dict(changed.reference_norms) == {5: 1.0}
    assert change(Policy(max_relative_dose=0.0), "max_relative_dose").HasField("max_relative_dose")


@pytest.mark.parametrize(
    "path", ["etag", "update_time", "nonsense", "reference_norms.1", "", "kill_switch.x", "\x1b"]
)
def test_a_mask_names_only_what_can_be_set(path: str) -> None:
    """Output-only, unknown and partial paths are refused, with the field of the request."""
    with pytest.raises(FieldMaskInvalid) as caught:
        change(Policy(), "strict", path)
    assert caught.value.violations[0][0] == "update_mask"


@pytest.mark.parametrize("limit", [-0.1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["max_relative_dose", "max_total_relative_dose"])
def test_a_limit_that_limits_nothing_is_refused(field: str, limit: float) -> None:
    """NaN compares false with everything: it must not get in."""
    with pytest.raises(PolicyInvalid) as caught:
        change(Policy(**{field: limit}))
    assert [violation[0] for violation in caught.value.violations] == [f"policy.{field}"]


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
def test_a_norm_that_measures_nothing_is_refused(norm: float) -> None:
    """A norm is finite and above zero; the violation names the layer."""
    with pytest.raises(PolicyInvalid) as caught:
        change(Policy(reference_norms={7: norm, 8: 1.0}))
    assert [violation[0] for violation in caught.value.violations] == ["policy.reference_norms[7]"]


@pytest.mark.parametrize("limit", [0.0, -1.0, 1e-40, math.nan, math.inf])
def test_a_live_limit_is_one_that_the_device_can_keep(limit: float) -> None:
    """Finite and above zero in fp32: for nothing at all there is the kill switch."""
    with pytest.raises(PolicyInvalid, match="max_live_relative_dose"):
        change(Policy(max_live_relative_dose=limit))
    assert change(Policy(max_live_relative_dose=0.25)).max_live_relative_dose == 0.25


@pytest.mark.parametrize("field", ["max_relative_dose_by_vector", "max_relative_dose_by_caller"])
def test_limits_by_name(field: str) -> None:
    """Each is a limit like any other, and the violation names it; a mask replaces them all."""
    for key, limit in (("joy", -1.0), ("joy", math.nan), ("", 1.0), ("x" * 257, 1.0)):
        with pytest.raises(PolicyInvalid) as caught:
            change(Policy(**{field: {key: limit}}))
        assert caught.value.violations[0][0].startswith(f"policy.{field}")
    assert dict(getattr(change(Policy(**{field: {"joy": 0.5}}), field), field)) == {"joy": 0.5}
    assert not getattr(change(Policy(), field), field)


@pytest.mark.parametrize("text", ["{", "7", "[[]]", "[]", '{"layer": 1}', "[" * 9999, "x" * 20000])
def test_a_default_names_vectors(text: str) -> None:
    """Anything but a specification is refused before it fails every request."""
    with pytest.raises(PolicyInvalid, match="default_spec"):
        change(Policy(default_spec=text))


def test_a_default_is_checked_against_what_is_registered() -> None:
    """The vectors of its entries, and those that a swap goes to."""
    spec = '[{"id": "joy"}, {"id": "calm", "op": "swap", "to": "dark"}]'
    wanted = change(Policy(default_spec=spec))
    policy.check_default(wanted, {"joy", "calm", "dark"})
    policy.check_default(policy.default(), set())
    with pytest.raises(PolicyInvalid, match="dark"):
        policy.check_default(wanted, {"joy", "calm"})


def test_layers_and_modes_out_of_range_are_refused() -> None:
    """A layer that no model has; a mode of a newer version."""
    with pytest.raises(PolicyInvalid, match="9 is no mode"):
        change(Policy(default_mode=9))
    with pytest.raises(PolicyInvalid, match="layer 2048"):
        change(Policy(reference_norms={2048: 1.0}))
    with pytest.raises(PolicyInvalid, match="17 is no mode"):
        change(Policy(dose_mode=17))


def test_a_policy_is_required() -> None:
    """An empty request must not reset the policy."""
    with pytest.raises(PolicyInvalid):
        policy.updated(CURRENT, SetPolicyRequest())


def test_an_old_etag_is_refused() -> None:
    """Who read an older policy must not overwrite a newer one; without an etag, all may."""
    assert change(Policy(etag=CURRENT.etag, strict=True)).strict
    with pytest.raises(EtagMismatch) as caught:
        change(Policy(etag="older", strict=True))
    assert caught.value.metadata["actual"] == CURRENT.etag


def test_an_etag_is_new_with_every_change() -> None:
    """Also when an older policy is set again."""
    wanted = Policy(kill_switch=True)
    first, second = policy.stamped(wanted, 4, 2.0), policy.stamped(wanted, 6, 3.5)
    assert first.etag != second.etag
    assert policy.same(first, second)
    assert not policy.same(first, policy.default())
    assert second.update_time.ToJsonString() == "1970-01-01T00:00:03.500Z"


def test_what_is_set_has_no_etag_of_the_callers() -> None:
    """Etag and time are the daemon's."""
    changed = change(Policy(etag=CURRENT.etag, dose_mode=DOSE_MODE_CLAMP))
    assert changed == Policy(dose_mode=DOSE_MODE_CLAMP, default_mode=DEFAULT_MODE_FALLBACK)
    assert change(Policy(dose_mode=DOSE_MODE_UNSPECIFIED), "dose_mode").dose_mode == (
        DOSE_MODE_REJECT
    )


def test_a_mask_that_repeats_itself_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message has room for 200,000 paths: each field is copied once, however often named."""
    copied: list[str] = []
    copy_field = policy._copy_field

    def counted(source: Policy, target: Policy, field: str) -> None:
        copied.append(field)
        copy_field(source, target, field)

    monkeypatch.setattr(policy, "_copy_field", counted)
    change(Policy(strict=True), *["strict", "reference_norms"] * 1000)
    assert sorted(copied) == ["reference_norms", "strict"]
