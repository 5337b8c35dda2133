"""How a vector is made of prompts."""

from dataclasses import dataclass

MEAN, PCA, LAST = "mean", "pca", "last"

#: What is made of two sets: the difference of their means, or the direction pairs differ in most.
METHODS = (MEAN, PCA)

#: Where a prompt is read: at its last token, or all but its first, averaged.
POSITIONS = (LAST, MEAN)


@dataclass(frozen=True, slots=True)
class How:
    """method: one of METHODS. position: one of POSITIONS. layers: ascending; None for all."""

    method: str
    position: str
    layers: tuple[int, ...] | None
