"""What a user asks for, as the coefficients of the steering op's one form.

The op does ``(c0 + c1 ||x|| + c2 (x.u) + c3 (clamp(x.u, lo, hi) - x.u)) w`` to x, the residual
stream. With v the vector as registered and s the request's scale:

==================  =====================================  ======================================
form                what it does                           u, w and coefficients
==================  =====================================  ======================================
add                 x += s v                               w = v; c0 = s
norm-matched add    x += s ||x|| v / ||v||                 w = v; c1 = s / ||v||
ablate              x -= s (x.v) v / ||v||^2               u = w = v; c2 = -s / ||v||^2
keep and scale      (x.v) becomes s (x.v)                  u = w = v; c2 = (s - 1) / ||v||^2
clamp, cap          (x.v) is moved into [lo, hi]           u = w = v; c3 = 1 / ||v||^2; lo, hi
pin                 (x.v) becomes a                        as clamp, with lo = hi = a
==================  =====================================  ======================================

Units: s of add is in multiples of v, s of norm-matched add in multiples of the token's own
residual norm, s of ablate and of keep and scale is a plain factor (1 ablates all, 1 keeps all);
lo, hi and a are values of x.v, so they scale with ||v||.

Sources: add, Turner et al. 2023 (arXiv:2308.10248) and Rimsky et al. 2023 (arXiv:2312.06681);
ablate, Arditi et al. 2024 (arXiv:2406.11717); pin, the feature clamping of Templeton et al. 2024
(Scaling Monosemanticity); the others follow from the form.

Only ``add`` can be asked for so far.
"""

from typing import TypeAlias

Coefficients: TypeAlias = tuple[float, float, float, float, float, float]


def coefficients(op: str, scale: float) -> Coefficients:
    """Return ``(c0, c1, c2, c3, lo, hi)`` of one op; ``scale`` is in multiples of the vector.

    Raises ValueError for an op other than ``"add"``.
    """
    if op != "add":
        raise ValueError(f"unknown op {op!r}: only 'add' is known")
    return (scale, 0.0, 0.0, 0.0, float("-inf"), float("inf"))
