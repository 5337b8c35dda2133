"""The steering op's Triton kernel, run by Triton's interpreter on the CPU.

Triton decides when it is first imported whether kernels are compiled or interpreted, and another
test may have imported it: so the tests below run in a process of their own, which one test here
starts. ``TRITON_INTERPRET=1 pytest tests/unit/test_op_triton.py`` runs them directly.
"""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit import op_cases
from tests.unit.op_cases import KINDS, Case, Steer, make, same_bits

pytest.importorskip("triton")

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

if os.environ.get("TRITON_INTERPRET") != "1":

    def test_kernel_under_the_interpreter() -> None:
        """All tests of the kernel pass in a fresh process with the interpreter on."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", __file__],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "skipped" not in done.stdout

else:
    from hotwire_plugin import op_triton
    from hotwire_plugin.op_triton import launch

    def check(steer: Steer, case: Case) -> torch.Tensor:
        """Compare with the truth; the interpreter stores bfloat16 cut off, not rounded."""
        cut_off = case.hidden.dtype == torch.bfloat16
        return op_cases.check(steer, case, units=1.0 if cut_off else 0.5)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("width", [1, 7, 64, 576, 1000, 2560])
    def test_matches_the_reference(width: int, dtype: torch.dtype) -> None:
        """Every dtype and width, widths that are no power of two among them."""
        for tokens, max_ops, residual in ((0, 1, True), (1, 1, False), (5, 4, True)):
            check(launch, make(tokens, width, max_ops=max_ops, dtype=dtype, residual=residual))

    def test_a_bigger_batch() -> None:
        """64 tokens of 8 ops."""
        check(launch, make(64, 64, max_ops=8, dtype=torch.bfloat16))

    @pytest.mark.parametrize("residual", [True, False])
    @pytest.mark.parametrize("kind", KINDS)
    def test_each_term_alone(kind: str, residual: bool) -> None:  # noqa: FBT001
        """Each coefficient works by itself and with the others."""
        for seed, max_ops in enumerate((1, 4, 8)):
            check(launch, make(9, 32, max_ops=max_ops, residual=residual, kind=kind, seed=seed))

    @pytest.mark.parametrize("pad", [1, 16])
    def test_rows_may_be_further_apart_than_wide(pad: int) -> None:
        """Row strides are honoured, aligned or not, and what lies between keeps its bits."""
        case = make(7, 64, pad=pad)
        whole = torch.full((7, 64 + pad), 3.0)
        whole[:, :64] = case.hidden
        launch(*replace(case, hidden=whole[:, :64]).args)
        assert torch.equal(whole[:, :64], check(launch, case))
        assert bool((whole[:, 64:] == 3.0).all())

    @pytest.mark.parametrize("limit", [0.01, 0.5, 100.0])
    def test_limit(limit: float) -> None:
        """A limit that holds back, one that does in part, one that doesn't."""
        for dtype in DTYPES:
            check(launch, make(9, 64, limit=limit, dtype=dtype, seed=3))

    @pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
    def test_limit_that_allows_nothing(limit: float) -> None:
        """A limit of 0, and one that makes no sense, leaves every bit: it fails closed."""
        case = make(9, 64, limit=limit)
        case.hidden[:, 0] = -0.0
        assert same_bits(check(launch, case), case.hidden)

    def test_a_limit_divides_by_no_zero() -> None:
        """A d of zero, and an x of zero, with a limit: no NaN."""
        case = make(9, 64, kind="add", residual=False, limit=0.5)
        case.op_coef[..., 0] = 0.0
        assert torch.equal(check(launch, case), case.hidden)
        origin = make(9, 64, kind="add", residual=False, limit=0.5)
        origin.hidden.zero_()
        assert not check(launch, origin).any()

    def test_unsteered_tokens_are_not_read() -> None:
        """Row 0, and a row without ops, leave NaNs and signed zeros as they are."""
        case = make(6, 64, dtype=torch.bfloat16)
        case.token_row[:6] = torch.tensor([0, 1, 2, 0, 1, 2])
        case.hidden[[0, 2, 3, 5]] = torch.tensor([math.nan, -0.0] * 32).bfloat16()
        before = case.hidden.clone()
        launch(*case.args)
        assert same_bits(case.hidden[[0, 2, 3, 5]], before[[0, 2, 3, 5]])
        assert bool(case.hidden[[1, 4]].isfinite().all())

    def test_warm(monkeypatch: pytest.MonkeyPatch) -> None:
        """Each kernel that a step can need is launched: with a residual or not, aligned or not."""
        launched = []

        def seen(hidden: torch.Tensor, residual: torch.Tensor | None, *args: torch.Tensor) -> None:
            launched.append((residual is not None, hidden.data_ptr() % 16 == 0))
            launch(hidden, residual, *args)

        monkeypatch.setattr(op_triton, "launch", seen)
        for width, dtype in ((576, torch.bfloat16), (7, torch.float32)):
            launched.clear()
            op_triton.warm(width, dtype, torch.device("cpu"), 8)
            assert sorted(launched) == [(a, b) for a in (False, True) for b in (False, True)]
