"""What steering does to one request, and what it does not do to the others."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Rig
from tests.support.engine_models import LAYERS, direction, zeros
from tests.support.engine_process import Ask

P, Q, R = "The weather today is", "My favourite animal is the", "In the year 1850 the city of"
ALL = range(LAYERS)
JOY = direction(1, ALL, norm=20.0)
CALM = direction(2, ALL, norm=20.0)


@pytest.fixture(autouse=True)
def _vectors(main: Rig) -> None:
    vectors = {"joy": JOY, "calm": CALM, "zero": zeros(ALL), "anywhere": direction(3, norm=20.0)}
    main.driver.put(vectors)


def ask(prompt: str, spec: object = None, **more: object) -> Ask:
    """A request of 24 tokens with the 20 likeliest of each."""
    return Ask(prompt, spec, **{"tokens": 24, "logprobs": 20, **more})  # type: ignore[arg-type]


def test_a_steered_request_differs_from_an_unsteered_one(main: Rig) -> None:
    """Steering shows, at one layer and at all of them."""
    plain, one, everywhere = main.engine.generate(
        [ask(P), ask(P, {"id": "joy", "layer": 14}), ask(P, {"id": "joy", "scale": 0.3})]
    )
    assert len({plain.tokens, one.tokens, everywhere.tokens}) == 3
    assert plain.logprobs[0] != one.logprobs[0]


@pytest.mark.parametrize(
    "spec",
    [
        {"layer": 14},
        {"scale": -0.5},
        {"layer": "10-20", "decode_only": True},
        {"layer": 3, "scope": "prompt"},
    ],
    ids=["one layer", "all layers", "generated", "prompt"],
)
def test_an_unsteered_batchmate_is_untouched(main: Rig, spec: dict[str, object]) -> None:
    """The batchmate's tokens and log-probabilities are those beside a zero vector, to the bit.

    The zero vector goes the whole way through the op, so both batches have one geometry.
    """
    beside_joy, steered = main.engine.generate([ask(P), ask(Q, {"id": "joy", **spec})])
    main.engine.call("reset_prefix_cache")
    before = main.driver.worker().steered_tokens_total
    beside_zero, zeroed = main.engine.generate([ask(P), ask(Q, {"id": "zero", **spec})])
    assert main.driver.worker().steered_tokens_total > before
    assert beside_joy.bits == beside_zero.bits
    assert steered.tokens != zeroed.tokens


def test_steering_by_nothing_is_exact(main: Rig) -> None:
    """A zero vector at every layer leaves the same bits as no steering."""
    plain, _ = main.engine.generate([ask(P), ask(Q)])
    main.engine.call("reset_prefix_cache")
    zeroed, _ = main.engine.generate([ask(P, {"id": "zero"}), ask(Q)])
    assert plain.bits == zeroed.bits


def test_three_ways_in_one_batch(main: Rig) -> None:
    """Two different steerings and none share a batch; each is what it is in any other company."""
    joy, calm = {"id": "joy", "layer": 14}, {"id": "calm", "layer": "5-9", "scale": -0.4}
    first = main.engine.generate([ask(P), ask(Q, joy), ask(R, calm)])
    main.engine.call("reset_prefix_cache")
    again = main.engine.generate([ask(P), ask(Q, joy), ask(R, {"id": "zero", "layer": "5-9"})])
    main.engine.call("reset_prefix_cache")
    other = main.engine.generate([ask(P), ask(Q, {"id": "zero", "layer": 14}), ask(R, calm)])
    assert first[0].bits == again[0].bits == other[0].bits
    assert first[1].bits == again[1].bits
    assert first[2].bits == other[2].bits
    assert first[1].tokens != other[1].tokens
    assert first[2].tokens != again[2].tokens


@pytest.mark.parametrize("entries", [[{"id": "joy"}], [{"id": "joy", "layer": 14}, {"id": "calm"}]])
def test_scale_zero_is_no_steering(main: Rig, entries: list[dict[str, object]]) -> None:
    """Scale 0 is bit for bit the unsteered request, and not even counted as steered."""
    before = main.driver.engine().requests_steered_total
    plain, _ = main.engine.generate([ask(P), ask(Q)])
    main.engine.call("reset_prefix_cache")
    scaled, _ = main.engine.generate([ask(P, [{**e, "scale": 0.0} for e in entries]), ask(Q)])
    assert plain.bits == scaled.bits
    report = main.driver.engine()
    assert report.requests_steered_total == before


def test_two_halves_make_a_whole(main: Rig) -> None:
    """Two entries of half the scale are one of the whole: the same tokens, up to fp32 rounding."""
    half = {"id": "joy", "layer": 14, "scale": 0.5}
    whole, _ = main.engine.generate([ask(P, {"id": "joy", "layer": 14}), ask(Q)])
    main.engine.call("reset_prefix_cache")
    halves, _ = main.engine.generate([ask(P, [half, half]), ask(Q)])
    assert whole.tokens == halves.tokens
    assert whole.distance(halves) < 1e-4


def test_entries_stack_over_vectors_and_layers(main: Rig) -> None:
    """Entries of different vectors at overlapping layers all act; their order changes nothing."""
    joy = {"id": "joy", "layer": "12-16", "scale": 0.4}
    calm = {"id": "calm", "layer": [14, 15], "scale": 0.7}
    anywhere = {"id": "anywhere", "layer": 14, "scale": -0.5}
    both = main.engine.one(ask(P, [joy, calm, anywhere]))
    main.engine.call("reset_prefix_cache")
    turned = main.engine.one(ask(P, [anywhere, calm, joy]))
    assert both.tokens == turned.tokens
    assert both.distance(turned) < 1e-4
    for part in (joy, calm, anywhere, [joy, calm], [calm, anywhere]):
        assert main.engine.one(ask(P, part)).tokens != both.tokens


def test_every_choice_of_a_request_is_steered(main: Rig) -> None:
    """All n choices of a request run with its program, in the core of the caller's process too."""
    before = main.driver.engine().requests_steered_total
    three = {"n": 3, "temperature": 0.01}
    steered = main.engine.one(ask(P, {"id": "joy", "layer": 14}, **three))
    assert main.driver.engine().requests_steered_total == before + 3
    plain = main.engine.one(ask(P, **three))
    assert set(plain.choices).isdisjoint(steered.choices)


def test_parameters_can_be_used_again(main: Rig) -> None:
    """Admission changes nothing in the parameters that a caller holds."""
    first = main.engine.call("generate_twice", ask(P, {"id": "joy", "layer": 14}))
    assert first[0].tokens == first[1].tokens
    assert first[0].tokens != main.engine.one(ask(P)).tokens


def test_a_program_of_a_clients_making_is_ignored(main: Rig) -> None:
    """Only admission makes programs: the key that carries them does nothing in a request."""
    before = main.driver.worker().program_errors_total
    plain, forged = main.engine.generate(
        [ask(P), ask(P, extra_args=(("hotwire_program", '{"version":"hotwire.program.v2"}'),))]
    )
    assert plain.tokens == forged.tokens
    assert main.driver.worker().program_errors_total == before
