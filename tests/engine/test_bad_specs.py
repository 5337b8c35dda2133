"""A bad specification harms nobody: not its own request, not its batchmates, not the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.engine.conftest import Rig
from tests.support.engine_models import LAYERS, direction
from tests.support.engine_process import Answer, Ask, EngineError

P, Q = "The weather today is", "My favourite animal is the"
GOOD = {"id": "joy", "layer": 14}
LIMIT = 0.25
NORM = 100.0
"""The reference norm of every layer: GOOD has a relative dose of 0.2."""


@dataclass(frozen=True)
class Bad:
    """A specification, the reason it is refused for, and what the message must name."""

    spec: Any
    reason: str
    names: str = ""


BAD = {
    "not JSON": Bad("{", "SPEC_NOT_JSON"),
    "no text": Bad("", "SPEC_NOT_JSON"),
    "a number": Bad(5, "SPEC_INVALID"),
    "no id": Bad({"layer": 14}, "SPEC_INVALID", "id"),
    "unknown key": Bad({**GOOD, "sclae": 1.0}, "UNKNOWN_FIELD", "'scale'"),
    "positions": Bad({**GOOD, "positions": ["-"]}, "POSITIONS_INVALID", "position"),
    "site": Bad({**GOOD, "site": "attn_out"}, "SITE_NOT_ARMED", "attn_out"),
    "key twice": Bad('{"id": "joy", "id": "joy"}', "SPEC_INVALID", "id"),
    "unknown vector": Bad({"id": "jou", "layer": 14}, "VECTOR_NOT_FOUND", "joy"),
    "NaN scale": Bad('{"id": "joy", "scale": NaN}', "SCALE_NOT_FINITE"),
    "infinite scale": Bad('{"id": "joy", "scale": -1e999}', "SCALE_NOT_FINITE"),
    "scale over fp32": Bad({**GOOD, "scale": 1e300}, "SCALE_NOT_FINITE"),
    "scale of text": Bad({**GOOD, "scale": "1"}, "SPEC_INVALID", "scale"),
    "negative layer": Bad({**GOOD, "layer": -1}, "LAYER_INVALID"),
    "layer over the model": Bad({"id": "anywhere", "layer": 30}, "LAYER_OUT_OF_RANGE", "30"),
    "layer not held": Bad({"id": "some", "layer": 14}, "LAYER_NOT_IN_VECTOR", "14"),
    "no layer": Bad({"id": "anywhere"}, "LAYER_REQUIRED", "layer"),
    "unknown op": Bad({**GOOD, "op": "rotate"}, "OP_UNSUPPORTED", "rotate"),
    "1 MB": Bad(json.dumps({**GOOD, "id": "j" * (1 << 20)}), "SPEC_TOO_LARGE"),
    "nested 10,000 deep": Bad("[" * 10_000 + "]" * 10_000, "SPEC_TOO_LARGE"),
    "nested 8,000 deep": Bad("[" * 8_000 + "]" * 8_000, "SPEC_INVALID"),
    "65 entries": Bad([GOOD] * 65, "TOO_MANY_ENTRIES"),
    "9 ops at a layer": Bad([GOOD] * 9, "TOO_MANY_OPS", "14"),
    "over the dose": Bad({**GOOD, "scale": 3.0}, "DOSE_EXCEEDED", "0.6"),
    "stacked over the dose": Bad([GOOD] * 3, "DOSE_EXCEEDED", "0.6"),
}


@pytest.fixture(autouse=True)
def _vectors(main: Rig) -> None:
    main.driver.vectors = {
        "joy": direction(1, range(LAYERS), norm=20.0),
        "some": direction(2, [5, 6], norm=20.0),
        "anywhere": direction(3, norm=20.0),
    }
    main.driver.set_policy(**_limits())


def _limits(**more: Any) -> dict[str, Any]:
    norms = dict.fromkeys(range(LAYERS), NORM)
    return {"max_relative_dose": LIMIT, "reference_norms": norms, **more}


@pytest.fixture(scope="module")
def expected() -> dict[str, Answer]:
    """What the good request and its unsteered batchmate come to; filled by the first test."""
    return {}


def batch(rig: Rig, spec: object) -> tuple[Answer, Answer]:
    """Runs a good request beside one with this specification, from an empty cache."""
    rig.engine.call("reset_prefix_cache")
    good, other = rig.engine.generate([Ask(P, GOOD), Ask(Q, spec)])
    return good, other


@pytest.mark.parametrize("case", BAD)
def test_a_bad_specification_unsteers_its_own_request_only(
    main: Rig, expected: dict[str, Answer], case: str
) -> None:
    """It runs as if it had asked for nothing, and its batchmate's steering keeps every bit.

    One log line and one count, by the reason; the line shows no control character and is short.
    """
    if not expected:
        expected["good"], expected["plain"] = batch(main, None)
    bad = BAD[case]
    report, logged = main.driver.engine(), len(main.engine.log_lines("runs unsteered"))
    good, unsteered = batch(main, bad.spec)
    assert good.bits == expected["good"].bits
    assert unsteered.bits == expected["plain"].bits
    after = main.driver.engine()
    assert after.requests_total == report.requests_total + 2
    assert after.requests_steered_total == report.requests_steered_total + 1
    counted = dict(report.requests_unsteered_total)
    counted[bad.reason] = counted.get(bad.reason, 0) + 1
    assert dict(after.requests_unsteered_total) == counted
    lines = main.engine.log_lines("runs unsteered")[logged:]
    assert len(lines) == 1
    assert bad.reason in lines[0]
    assert len(lines[0]) < 1000


@pytest.mark.parametrize("case", BAD)
def test_a_strict_bad_specification_is_refused_with_its_reason(main: Rig, case: str) -> None:
    """By a strict policy the caller is told the reason and what it is about, and no more."""
    bad = BAD[case]
    main.driver.set_policy(**_limits(strict=True))
    before = main.driver.engine().requests_total
    with pytest.raises(EngineError) as refused:
        main.engine.one(Ask(Q, bad.spec))
    assert refused.value.kind == "VLLMValidationError"
    assert bad.reason in str(refused.value)
    assert bad.names in str(refused.value)
    assert len(str(refused.value)) < 1000
    assert main.driver.engine().requests_total == before
    assert main.driver.engine().requests_live == 0


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"id": "nobody", "strict": True}, "VECTOR_NOT_FOUND"),
        ({**GOOD, "scale": 3.0, "strict": True}, "DOSE_EXCEEDED"),
        ({**GOOD, "colour": "red", "strict": True}, "UNKNOWN_FIELD"),
        ([GOOD, {"id": "nobody", "strict": True}], "VECTOR_NOT_FOUND"),
        ('{"id": "joy", "scale": NaN, "strict": true}', "SCALE_NOT_FINITE"),
    ],
)
def test_a_request_can_ask_to_be_refused(main: Rig, spec: object, reason: str) -> None:
    """With "strict": true a request is refused where another one would run unsteered."""
    with pytest.raises(EngineError, match=reason) as refused:
        main.engine.one(Ask(Q, spec))
    assert refused.value.kind == "VLLMValidationError"


def test_a_good_strict_request_is_served(main: Rig) -> None:
    """Strictness changes nothing for a specification that can be honoured."""
    loose = main.engine.one(Ask(P, GOOD))
    main.engine.call("reset_prefix_cache")
    assert main.engine.one(Ask(P, {**GOOD, "strict": True})).bits == loose.bits


def test_a_clamped_dose_is_the_scale_that_meets_the_limit(main: Rig) -> None:
    """With clamping a request over the limit is the one that asks for just the limit."""
    just_below = LIMIT * NORM / 20.0 * (1 - 1e-6)  # the row's norm is 20 but for its rounding
    good, allowed = batch(main, {**GOOD, "scale": just_below})
    assert allowed.differs_from(batch(main, None)[1])
    main.driver.set_policy(**_limits(dose_mode="DOSE_MODE_CLAMP"))
    before = main.driver.engine().dose_decisions_total["clamped"]
    beside, clamped = batch(main, {**GOOD, "scale": 30.0})
    assert main.driver.engine().dose_decisions_total["clamped"] == before + 1
    assert beside.bits == good.bits
    assert clamped.same_as(allowed)


def test_a_layer_without_a_reference_norm_fails_closed(main: Rig) -> None:
    """While a limit is set, what is not measured is not steered, unless the policy allows it."""
    norms = {layer: NORM for layer in range(LAYERS) if layer != 14}
    main.driver.set_policy(max_relative_dose=LIMIT, reference_norms=norms)
    steered = batch(main, {**GOOD, "layer": 13})[1]
    before = main.driver.engine().requests_unsteered_total["DOSE_UNKNOWN_NORM"]
    assert batch(main, GOOD)[1].bits == batch(main, None)[1].bits
    assert main.driver.engine().requests_unsteered_total["DOSE_UNKNOWN_NORM"] > before
    main.driver.set_policy(max_relative_dose=LIMIT, allow_unmonitored=True)
    unmonitored = batch(main, GOOD)[1]
    assert unmonitored.differs_from(batch(main, None)[1])
    assert unmonitored.differs_from(steered)


def test_a_revision_that_is_not_staged_unsteers_its_own_request_only(main: Rig) -> None:
    """A worker that lacks a revision steers the others; the request runs on, and is counted."""
    good, plain = batch(main, None)
    main.driver.vectors["ghost"] = direction(9, range(LAYERS), norm=20.0)
    main.driver.commit_unstaged()
    errors = main.driver.worker().program_errors_total["REVISION_NOT_STAGED"]
    beside, ghost = batch(main, {"id": "ghost", "layer": 14})
    assert beside.bits == good.bits
    assert ghost.bits == plain.bits
    assert main.driver.worker().program_errors_total["REVISION_NOT_STAGED"] == errors + 1
    assert len(main.engine.log_lines("REVISION_NOT_STAGED")) == errors + 1
