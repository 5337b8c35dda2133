"""From positions to figures: which first tokens are apart, and the numbers of the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwirectl.norms import summary
from hotwirectl.norms.summary import Norms


def stream(*sinks: float, length: int = 40, layers: int = 3, seed: int = 0) -> Norms:
    """Norms around 10, with the first positions' multiplied at the last layer."""
    made = np.random.default_rng(seed).uniform(9, 11, (layers, length)).astype(np.float32)
    made[-1, : len(sinks)] *= np.array(sinks, np.float32)
    return made


@pytest.mark.parametrize(
    ("sinks", "skipped"),
    [((), 1), ((100.0,), 1), ((1.0, 100.0), 2), ((100.0, 50.0, 1.0, 90.0), 2), ((50.0,) * 20, 8)],
)
def test_massive_first_positions_are_apart(sinks: tuple[float, ...], skipped: int) -> None:
    """Position 0 always, those right behind it while they are massive, and never over eight."""
    assert summary.first_tokens([stream(*sinks, seed=seed) for seed in range(3)]) == skipped


def test_one_prompt_of_many_decides_nothing() -> None:
    """A massive word at position 1 of one prompt is that prompt's."""
    assert summary.first_tokens([stream(9.0, 90.0), *(stream(9.0, seed=n) for n in (1, 2))]) == 1


@given(st.integers(0, 5), st.lists(st.integers(6, 30), min_size=1, max_size=4))
def test_every_position_counts_once(skipped: int, lengths: list[int]) -> None:
    """What is apart and what is not are all positions, with numpy's own figures."""
    found = [stream(100.0, length=n, seed=n) for n in lengths]
    rest = summary.layers(found, skipped)
    first = summary.apart(found, skipped, "r")
    assert rest[0].count == sum(lengths) - skipped * len(lengths)
    assert (first is None) == (skipped == 0)
    if first:
        assert first.layers[0].count == skipped * len(lengths)
    whole = np.concatenate([norms[1, skipped:] for norms in found]).astype(np.float64)
    assert rest[1].mean == pytest.approx(whole.mean())
    assert rest[1].p95 == pytest.approx(np.percentile(whole, 95))
    assert rest[1].max == whole.max()


def test_nothing_left_or_not_finite_is_refused() -> None:
    """No figure is made up."""
    with pytest.raises(ValueError, match="no prompt is longer"):
        summary.layers([stream(length=3)], 3)
    broken = stream()
    broken[1, 7] = np.inf
    with pytest.raises(ValueError, match="not finite"):
        summary.layers([broken], 1)
