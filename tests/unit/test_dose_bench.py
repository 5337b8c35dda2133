"""The figures of bench.dose on made-up models and texts."""

import math

import pytest
import torch
from torch import Tensor

from bench.dose import measure


def uniform(ids: Tensor) -> Tensor:
    """Logits of a model that knows nothing of 50 tokens."""
    return torch.zeros(1, ids.shape[1], 50)


@pytest.mark.parametrize("tokens", [2, measure.WINDOW, measure.WINDOW + 1, 2 * measure.WINDOW + 7])
def test_perplexity_of_a_model_that_knows_nothing(tokens: int) -> None:
    """It is the size of the vocabulary, however the text is cut."""
    assert measure.perplexity(uniform, torch.zeros(tokens, dtype=torch.int64)) == pytest.approx(50)


def test_perplexity_is_of_the_token_that_follows() -> None:
    """A model that says twice the last token is seen as right where the text does."""

    def doubling(ids: Tensor) -> Tensor:
        return 2.0 * torch.nn.functional.one_hot(2 * ids % 8, 8).float()

    expected = (math.exp(2) + 7) / math.exp(2)
    assert measure.perplexity(doubling, torch.tensor([1, 2, 4, 0, 0])) == pytest.approx(expected)


def test_repeated_4_grams() -> None:
    """The second and later occurrences, over all."""
    assert measure.repeated([1, 2, 3]) == 0
    assert measure.repeated(range(50)) == 0
    assert measure.repeated([7] * 13) == pytest.approx(0.9)
    assert measure.repeated([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(0.2)
