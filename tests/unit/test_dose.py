"""The dose decision: outcomes, boundary values, and laws that hold for any input."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwired import dose
from hotwired.dose import OUTCOMES, Contribution, DoseDecision, DoseMode, DosePolicy

NORMS = dict.fromkeys(range(8), 10.0)


def policy(mode: DoseMode = DoseMode.REJECT, **limits: object) -> DosePolicy:
    """A policy with a reference norm of 10 at layers 0 to 7."""
    return DosePolicy(**{"mode": mode, "reference_norms": NORMS, **limits})  # type: ignore[arg-type]


def decide(policy: DosePolicy, parts: list[tuple[int, float]]) -> DoseDecision:
    """Decide on (layer, amount) pairs."""
    return dose.decide(policy, [Contribution(*part) for part in parts])


def test_without_a_limit_no_norm_is_needed() -> None:
    """Nothing is measured, so an unknown norm and a huge amount are both allowed."""
    decision = decide(DosePolicy(), [(3, 1e300), (99, 5.0)])
    assert (decision.outcome, decision.reason) == ("allowed", None)
    assert decision.factor_by_layer == {3: 1.0, 99: 1.0}


@pytest.mark.parametrize("mode", [DoseMode.REJECT, DoseMode.CLAMP, DoseMode.WARN])
def test_exactly_at_the_limit_is_allowed(mode: DoseMode) -> None:
    """The limit belongs to what is allowed, in every mode."""
    decision = decide(policy(mode, max_relative_dose=0.5), [(0, 5.0), (1, 4.0)])
    assert (decision.outcome, decision.worst_layer, decision.relative_dose) == ("allowed", 0, 0.5)
    assert decision.total_relative_dose == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("mode", "outcome", "reason"),
    [
        (DoseMode.REJECT, "rejected", "DOSE_EXCEEDED"),
        (DoseMode.CLAMP, "clamped", None),
        (DoseMode.WARN, "warned", None),
    ],
)
def test_one_ulp_over_the_limit(mode: DoseMode, outcome: str, reason: str | None) -> None:
    """The smallest excess counts, and the mode says what it leads to."""
    decision = decide(policy(mode, max_relative_dose=0.5), [(0, math.nextafter(5.0, 6.0))])
    assert (decision.outcome, decision.reason) == (outcome, reason)


def test_what_stacks_at_a_layer_is_summed() -> None:
    """Two operations under the limit can be over it together, and at two layers are not."""
    limited = policy(max_relative_dose=0.5)
    assert decide(limited, [(0, 3.0), (0, 3.0)]).reason == "DOSE_EXCEEDED"
    assert decide(limited, [(0, 3.0), (1, 3.0)]).reason is None


def test_the_total_is_limited_on_its_own() -> None:
    """Layers that are each allowed can be too much together."""
    limited = policy(max_total_relative_dose=1.0)
    assert decide(limited, [(layer, 2.0) for layer in range(5)]).outcome == "allowed"
    decision = decide(limited, [(layer, 2.0) for layer in range(6)])
    assert decision.reason == "DOSE_EXCEEDED"
    assert decision.total_relative_dose == pytest.approx(1.2)


def test_clamping_reduces_only_the_layers_that_are_over() -> None:
    """A per-layer limit leaves the other layers as they were asked for."""
    decision = decide(policy(DoseMode.CLAMP, max_relative_dose=0.5), [(0, 10.0), (1, 4.0)])
    assert decision.factor_by_layer[0] == pytest.approx(0.5)
    assert decision.factor_by_layer[1] == 1.0
    assert decision.relative_dose == 1.0  # as asked


def test_clamping_the_total_keeps_the_proportions() -> None:
    """After the per-layer clamp, one common factor brings the total down."""
    limited = policy(DoseMode.CLAMP, max_relative_dose=1.0, max_total_relative_dose=0.75)
    decision = decide(limited, [(0, 20.0), (1, 5.0)])
    assert decision.outcome == "clamped"
    assert decision.factor_by_layer[0] == pytest.approx(0.25)
    assert decision.factor_by_layer[1] == pytest.approx(0.5)


@pytest.mark.parametrize("limit", [0.0, 5e-324, 1e-40])
def test_clamping_to_nothing_is_a_rejection(limit: float) -> None:
    """A limit that no scale meets rejects: the request would run unsteered."""
    decision = decide(policy(DoseMode.CLAMP, max_relative_dose=limit), [(0, 1.0)])
    assert (decision.outcome, decision.reason) == ("rejected", "DOSE_EXCEEDED")


@pytest.mark.parametrize("amount", [math.inf, -math.inf, math.nan, -1.0])
@pytest.mark.parametrize("mode", [DoseMode.REJECT, DoseMode.CLAMP])
def test_an_amount_that_is_no_length_is_rejected(mode: DoseMode, amount: float) -> None:
    """NaN, infinite and negative amounts slip through no comparison."""
    decision = decide(policy(mode, max_relative_dose=1e300), [(0, amount), (1, 1.0)])
    assert decision.reason == "DOSE_EXCEEDED"


def test_a_sum_that_overflows_is_rejected() -> None:
    """Finite amounts whose sum, or quotient, is infinite are over any limit."""
    limited = policy(max_relative_dose=1e308)
    assert decide(limited, [(0, 1.7e308), (0, 1.7e308)]).reason == "DOSE_EXCEEDED"
    tiny = DosePolicy(max_relative_dose=1e308, reference_norms={0: 1e-30})
    assert decide(tiny, [(0, 1e300)]).reason == "DOSE_EXCEEDED"


UNUSABLE = [None, 0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 5e-324, 1e-40, True, "10"]


@pytest.mark.parametrize("norm", UNUSABLE)
@pytest.mark.parametrize("mode", [DoseMode.REJECT, DoseMode.CLAMP])
def test_an_unusable_norm_fails_closed(mode: DoseMode, norm: object) -> None:
    """Unknown, zero, negative, non-finite and denormal norms reject, naming the layer."""
    norms = {0: 10.0} if norm is None else {0: 10.0, 1: norm}
    limited = policy(mode, max_relative_dose=9.0, reference_norms=norms)
    decision = decide(limited, [(0, 1.0), (1, 1.0)])
    assert (decision.outcome, decision.reason) == ("rejected", "DOSE_UNKNOWN_NORM")
    assert decision.worst_layer == 1


@pytest.mark.parametrize("norm", UNUSABLE)
def test_an_unusable_norm_is_let_through_when_the_policy_says_so(norm: object) -> None:
    """With allow_unmonitored or in warn mode the layer runs, and the outcome tells."""
    norms = {} if norm is None else {1: norm}
    allowing = policy(max_relative_dose=9.0, reference_norms=norms, allow_unmonitored=True)
    warning = policy(DoseMode.WARN, max_relative_dose=9.0, reference_norms=norms)
    for limited in (allowing, warning):
        decision = decide(limited, [(1, 1.0)])
        assert (decision.outcome, decision.reason) == ("unmonitored", None)
        assert decision.relative_dose is None


def test_a_monitored_layer_is_limited_beside_an_unmonitored_one() -> None:
    """allow_unmonitored lifts no limit where there is a norm."""
    limited = policy(DoseMode.CLAMP, max_relative_dose=0.5, allow_unmonitored=True)
    decision = decide(limited, [(0, 10.0), (99, 10.0)])
    assert decision.outcome == "clamped"
    assert decision.factor_by_layer[0] == pytest.approx(0.5)
    assert decision.factor_by_layer[99] == 1.0


@pytest.mark.parametrize("limit", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("name", ["max_relative_dose", "max_total_relative_dose"])
def test_a_limit_that_limits_nothing_is_no_policy(name: str, limit: float) -> None:
    """A NaN limit would let everything through, so it can't be built."""
    with pytest.raises(ValueError, match=name):
        policy(**{name: limit})


def test_no_contributions_are_allowed() -> None:
    """A request without operations has no dose."""
    assert decide(policy(max_relative_dose=0.0), []).outcome == "allowed"


amounts = st.lists(st.tuples(st.integers(0, 9), st.floats(allow_nan=True)), max_size=40)
lengths = st.lists(st.tuples(st.integers(0, 7), st.floats(0, 1e30)), max_size=40)
limits = st.none() | st.floats(0, 1e300)
policies = st.builds(
    DosePolicy,
    mode=st.sampled_from(DoseMode),
    max_relative_dose=limits,
    max_total_relative_dose=limits,
    allow_unmonitored=st.booleans(),
    reference_norms=st.dictionaries(st.integers(0, 9), st.floats()),
)


@given(policies, amounts)
def test_any_input_gets_a_decision(
    limited: DosePolicy, contributions: list[tuple[int, float]]
) -> None:
    """Never an exception; a factor in (0, 1] for each layer; a reason exactly if rejected."""
    decision = decide(limited, contributions)
    assert decision.outcome in OUTCOMES
    assert (decision.reason is not None) == (decision.outcome in {"rejected", "shadowed"})
    assert set(decision.factor_by_layer) == {layer for layer, _ in contributions}
    assert all(0.0 < factor <= 1.0 for factor in decision.factor_by_layer.values())


@given(limits, limits, st.dictionaries(st.integers(0, 7), st.floats(1e-30, 1e30)), lengths)
def test_clamping_never_exceeds_a_limit(
    layer_limit: float | None,
    total_limit: float | None,
    norms: dict[int, float],
    contributions: list[tuple[int, float]],
) -> None:
    """What is let through, measured anew with plain sums, is at most the limit."""
    norms = {**NORMS, **norms}
    clamping = DosePolicy(DoseMode.CLAMP, layer_limit, total_limit, False, norms)
    decision = decide(clamping, contributions)
    if decision.outcome != "clamped":
        return
    doses = dict.fromkeys(decision.factor_by_layer, 0.0)
    for layer, amount in contributions:
        doses[layer] += amount * decision.factor_by_layer[layer] / norms[layer]
    assert layer_limit is None or max(doses.values()) <= layer_limit
    assert total_limit is None or sum(doses.values()) <= total_limit


def part(layer: int, amount: float, vector: str, relative: float = 0.0) -> Contribution:
    """Return what an operation adds."""
    return Contribution(layer, amount, relative, vector)


def test_a_vector_can_have_a_limit_of_its_own() -> None:
    """It counts what the vector contributes itself; others are not measured for it."""
    limited = policy(by_vector={"joy": 0.5})
    assert dose.decide(limited, [part(0, 5.0, "joy"), part(0, 50.0, "calm")]).reason is None
    assert dose.decide(limited, [part(99, 50.0, "calm")]).outcome == "allowed"
    over = dose.decide(limited, [part(0, 5.0, "joy"), part(0, 0.1, "joy")])
    assert over.reason == "DOSE_EXCEEDED"
    assert dose.decide(limited, [part(99, 1.0, "joy")]).reason == "DOSE_UNKNOWN_NORM"


def test_a_vector_over_its_limit_clamps_its_layer_whole() -> None:
    """One factor for all that stacks at the layer, so that the direction of the sum is kept."""
    limited = policy(DoseMode.CLAMP, by_vector={"joy": 0.5}, max_relative_dose=5.0)
    parts = [part(0, 10.0, "joy"), part(0, 10.0, "calm"), part(1, 10.0, "calm")]
    decision = dose.decide(limited, parts)
    assert decision.outcome == "clamped"
    assert decision.factor_by_layer == {0: pytest.approx(0.5), 1: 1.0}


def test_a_caller_has_the_lower_of_two_limits() -> None:
    """Its own, or everybody's; a label without a limit has everybody's."""
    limited = policy(max_relative_dose=0.5, by_caller={"team": 0.25, "loose": 2.0})
    assert limited.of("team").max_relative_dose == 0.25
    assert limited.of("loose").max_relative_dose == limited.of("").max_relative_dose == 0.5
    assert policy(by_caller={"team": 0.25}).of("team").limited


def test_a_bound_relative_to_the_stream_needs_no_norm() -> None:
    """It adds to what is measured by one, and stands alone where nothing else is added."""
    limited = policy(max_relative_dose=0.5)
    assert dose.decide(limited, [part(99, 0.0, "joy", 0.5)]).outcome == "allowed"
    assert dose.decide(limited, [part(99, 0.0, "joy", 0.6)]).reason == "DOSE_EXCEEDED"
    both = dose.decide(limited, [part(0, 2.0, "joy", 0.25)])
    assert both.relative_dose == pytest.approx(0.45)
    assert dose.decide(limited, [part(99, 1.0, "joy", 0.1)]).reason == "DOSE_UNKNOWN_NORM"


def test_shadow_measures_and_lets_nothing_through() -> None:
    """Whatever the dose is; where there is no norm, there is no figure either."""
    decision = dose.decide(policy(DoseMode.SHADOW), [part(0, 5.0, "joy"), part(99, 1.0, "joy")])
    assert (decision.outcome, decision.reason) == ("shadowed", "DOSE_SHADOWED")
    assert (decision.worst_layer, decision.relative_dose) == (0, 0.5)


vectors = st.sampled_from(["joy", "calm", "dark"])
parts = st.lists(
    st.builds(part, st.integers(0, 7), st.floats(0, 1e30), vectors, st.floats(0, 10)), max_size=20
)


@given(st.dictionaries(vectors, st.floats(1e-30, 1e3), min_size=1), limits, parts)
def test_clamping_never_exceeds_a_vectors_limit(
    by_vector: dict[str, float], layer_limit: float | None, contributions: list[Contribution]
) -> None:
    """What each vector contributes at each layer, measured anew, is at most its limit."""
    limited = policy(DoseMode.CLAMP, by_vector=by_vector, max_relative_dose=layer_limit)
    decision = dose.decide(limited, contributions)
    if decision.outcome != "clamped":
        return
    for name, limit in by_vector.items():
        for layer, factor in decision.factor_by_layer.items():
            own = [p for p in contributions if (p.layer, p.vector) == (layer, name)]
            assert sum(factor * (p.amount / NORMS[layer] + p.relative) for p in own) <= limit


def test_what_is_relative_compounds() -> None:
    """Each operation acts on the stream that those before it have made longer."""
    eight = [part(99, 0.0, "joy", 0.5)] * 8
    decision = dose.decide(policy(max_relative_dose=4.0), eight)
    assert decision.reason == "DOSE_EXCEEDED"
    assert decision.relative_dose == pytest.approx(1.5**8 - 1)
    after = dose.decide(
        policy(max_relative_dose=9.0), [part(0, 10.0, "joy"), part(0, 0.0, "joy", 0.5)]
    )
    assert after.relative_dose == pytest.approx(1.0 + 0.5 * 2.0)


def test_a_swap_counts_for_both_its_vectors() -> None:
    """What goes to a vector is limited by that vector's own limit, too."""
    limited = policy(by_vector={"limited": 0.01})
    swap = Contribution(0, 0.0, 10.0, "joy", "limited")
    assert dose.decide(limited, [swap]).reason == "DOSE_EXCEEDED"
    assert dose.decide(policy(by_vector={"other": 0.01}), [swap]).outcome == "allowed"
