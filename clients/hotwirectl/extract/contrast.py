"""From the residual streams of two sets of prompts to one direction a layer. Pure."""

import numpy as np
import numpy.typing as npt

from hotwirectl.extract.how import PCA

Stream = npt.NDArray[np.float32]
"""The residual stream of prompts: [prompts, layers, width]."""


def direction(positive: Stream, negative: Stream, method: str) -> npt.NDArray[np.float32]:
    """Returns the direction of each layer, [layers, width], from the negative to the positive.

    "mean" is the difference of the means. "pca" is, of the pairs' differences, the first principal
    component about zero, as long as the mean difference is along it: so scale 1 means the same.

    Raises ValueError if "pca" is asked for sets that are no pairs.
    """
    difference = positive.mean(0, dtype=np.float64) - negative.mean(0, dtype=np.float64)
    if method == PCA:
        if len(positive) != len(negative):
            raise ValueError(
                f"pca takes pairs, and there are {len(positive)} positive prompts and "
                f"{len(negative)} negative ones"
            )
        pairs = positive.astype(np.float64) - negative.astype(np.float64)
        difference = np.stack([_along(pairs[:, n], row) for n, row in enumerate(difference)])
    found: npt.NDArray[np.float32] = difference.astype(np.float32)
    return found


def _along(
    pairs: npt.NDArray[np.float64], difference: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Returns the projection of a difference onto the direction that pairs differ in most."""
    _, _, components = np.linalg.svd(pairs, full_matrices=False)
    found: npt.NDArray[np.float64] = components[0] * (components[0] @ difference)
    return found
