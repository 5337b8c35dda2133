"""The steering op on CPU tensors, and its reference."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotwire_plugin import op
from hotwire_plugin.op_reference import steer_reference
from tests.unit.op_cases import KINDS, ROWS, Case, check, make, same_bits

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDTHS = (1, 7, 64, 576, 1000, 2560)


def steer(*args: torch.Tensor | None) -> None:
    """The op as a model calls it."""
    torch.ops.hotwired.steer(*args)


@pytest.fixture(autouse=True)
def _open_gate() -> Iterator[None]:
    op.cpu_gate.active = True
    yield
    op.cpu_gate.active = True


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [0, 1, 5, 64])
@pytest.mark.parametrize("width", WIDTHS)
def test_matches_the_reference(width: int, tokens: int, dtype: torch.dtype) -> None:
    """Every dtype, width and number of tokens comes out as the reference says."""
    for number, max_ops in enumerate((1, 4, 8) if tokens < 64 else (1,)):
        case = make(
            tokens, width, max_ops=max_ops, dtype=dtype, residual=number % 2 == 0, seed=number
        )
        check(steer, case)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("max_ops", [1, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_each_term_alone(kind: str, max_ops: int, residual: bool) -> None:  # noqa: FBT001
    """Each coefficient works by itself and with the others, one op or many, residual or not."""
    for seed, dtype in enumerate(DTYPES):
        check(
            steer,
            make(9, 64, max_ops=max_ops, residual=residual, dtype=dtype, kind=kind, seed=seed),
        )


@pytest.mark.parametrize("pad", [1, 8, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_may_be_further_apart_than_wide(dtype: torch.dtype, pad: int) -> None:
    """Row strides are honoured, and what lies between the rows keeps its bits."""
    case = make(7, 64, dtype=dtype, pad=pad)
    whole = torch.full((7, 64 + pad), 3.0, dtype=dtype)
    whole[:, :64] = case.hidden
    case = replace(case, hidden=whole[:, :64])
    check(steer, case)
    steer(*case.args)
    assert bool((whole[:, 64:] == 3.0).all())


def test_one_rounding() -> None:
    """Many adds, each far below bfloat16's resolution, add up in float32 before the store."""
    case = _single(torch.ones(1, 4, dtype=torch.bfloat16), [(2.0**-10, 0, 0, 0)] * 8)
    steer(*case.args)
    assert case.hidden.tolist() == [[1 + 2.0**-7] * 4]


def test_later_ops_read_what_earlier_ops_wrote() -> None:
    """x += w, then x -= (x.w) w leaves nothing of w, though x had none of it at first."""
    case = _single(torch.zeros(1, 4), [(1.0, 0, 0, 0), (0, 0, -1.0, 0)], vector=(1.0, 0, 0, 0))
    steer(*case.args)
    assert case.hidden.tolist() == [[0.0] * 4]


def test_residual_counts_but_keeps_its_bits() -> None:
    """||x|| is that of both halves; only hidden is written."""
    case = _single(torch.tensor([[3.0, 0.0]]), [(0, 1.0, 0, 0)], vector=(0.0, 1.0))
    residual = torch.tensor([[0.0, 4.0]])
    steer(*replace(case, residual=residual).args)
    assert case.hidden.tolist() == [[3.0, 5.0]]
    assert residual.tolist() == [[0.0, 4.0]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_unsteered_tokens_keep_their_bits(dtype: torch.dtype) -> None:
    """Row 0, and a row without ops, leave NaNs and signed zeros as they are, whatever is around."""
    case = make(8, 64, dtype=dtype)
    assert case.residual is not None
    case.token_row[:8] = torch.tensor([0, 1, 2, 0, 3, 2, 0, 5])
    untouched = [0, 2, 3, 5, 6]
    case.hidden[untouched] = torch.tensor([math.nan, -0.0, math.inf, 1.0] * 16).to(dtype)
    case.residual[untouched] = math.nan
    before = case.hidden.clone()
    steer(*case.args)
    assert same_bits(case.hidden[untouched], before[untouched])
    assert not same_bits(case.hidden, before)
    assert bool(case.hidden[[1, 4, 7]].isfinite().all())


def test_other_tokens_do_not_matter() -> None:
    """A token's result has the same bits alone as among others."""
    case = make(12, 576, kind="add", max_ops=1, dtype=torch.bfloat16)
    together = check(steer, case)
    for token in range(12):
        alone = replace(
            case,
            hidden=case.hidden[token : token + 1],
            residual=None,
            token_row=case.token_row[token : token + 1],
        )
        assert same_bits(check(steer, alone)[0], together[token])


def test_tokens_past_the_table_of_rows() -> None:
    """token_row may be longer than the batch; what is beyond isn't looked at."""
    case = make(5, 64)
    case.token_row[5:] = 10**6
    check(steer, case)


@pytest.mark.parametrize("limit", [1e-3, 0.1, 0.5, 1.0, 100.0])
@pytest.mark.parametrize("kind", ["add", "mixed"])
def test_limit(kind: str, limit: float) -> None:
    """With a limit, ||d|| ends at most at limit * ||x0||; a limit not reached changes nothing."""
    for dtype in DTYPES:
        check(steer, make(16, 576, kind=kind, limit=limit, dtype=dtype, seed=2))
    case = make(16, 576, kind=kind, limit=limit)
    assert case.residual is not None
    moved = check(steer, case) - case.hidden
    dose = moved.norm(dim=1) / (case.hidden + case.residual).norm(dim=1)
    # 1e-5: the subtraction of what was stored, and two norms of 576 terms, all in float32
    assert bool((dose <= limit * (1 + 1e-5) + 1e-6).all())


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_limit_that_allows_nothing(limit: float) -> None:
    """A limit of 0, and one that makes no sense, leaves every bit: it fails closed."""
    case = make(16, 64, limit=limit)
    case.hidden[:, 0] = -0.0
    assert same_bits(check(steer, case), case.hidden)


def test_limits_differ_by_row() -> None:
    """Each row has its own limit, in one call."""
    case = make(32, 64, seed=4)
    case.limit[:] = torch.tensor([math.inf, 0.05, math.inf, 0.0, math.inf, 10.0])
    check(steer, case)


def test_a_limit_divides_by_no_zero() -> None:
    """A d of zero, and an x of zero, with a limit: no NaN."""
    nothing = _single(torch.ones(2, 4), [(0, 0, 0, 0)], limit=0.5)
    steer(*nothing.args)
    assert nothing.hidden.tolist() == [[1.0] * 4] * 2
    origin = _single(torch.zeros(2, 4), [(1.0, 0, 0, 0)], limit=0.5)
    steer(*origin.args)
    assert origin.hidden.tolist() == [[0.0] * 4] * 2


def test_slot_u_counts_only_where_it_is_read() -> None:
    """An op with neither c2 nor c3 may leave slot_u unset."""
    for coefficients in [(1.0, 0, 0, 0), (0, 0.5, 0, 0)]:
        case = _single(torch.ones(3, 4), [coefficients])
        case.op_slots[..., 0] = -1
        check(steer, case)


@given(scale=st.floats(-100, 100, width=32), seed=st.integers(0, 100))
def test_half_and_half_make_one(scale: float, seed: int) -> None:
    """Two adds of half the scale give one add of all of it, within three float32 roundings."""
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(seed))
    once, twice = (_single(x.clone(), [(scale / n, 0, 0, 0)] * n) for n in (1, 2))
    steer(*once.args)
    steer(*twice.args)
    allowed = 3 * 2.0**-24 * (x.abs() + abs(scale))
    assert bool(((once.hidden - twice.hidden).abs() <= allowed).all())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_tables(data: st.DataObject) -> None:
    """Whatever finite coefficients, bounds, limits and rows: as the reference says."""
    draw = data.draw
    tokens, width, max_ops = draw(st.integers(0, 6)), draw(st.integers(1, 40)), 3
    case = make(
        tokens, width, max_ops=max_ops, dtype=draw(st.sampled_from(DTYPES)),
        residual=draw(st.booleans()), pad=draw(st.integers(0, 3)), seed=draw(st.integers(0, 999)),
    )  # fmt: skip
    number = st.one_of(st.just(0.0), st.floats(-2, 2, width=32))
    bound = st.one_of(st.none(), st.floats(-3, 3, width=32))
    for row in range(1, ROWS):
        case.limit[row] = draw(st.sampled_from([math.inf, 2.0, 0.25, 0.0, math.nan, -1.0]))
        case.op_count[row] = draw(st.integers(0, max_ops))
        for k in range(int(case.op_count[row])):
            terms, lo, hi = [draw(number) for _ in range(4)], draw(bound), draw(bound)
            lo, hi = -math.inf if lo is None else lo, math.inf if hi is None else hi
            case.op_coef[row, k] = torch.tensor([*terms, min(lo, hi), max(lo, hi)])
            case.op_slots[row, k] = torch.tensor([draw(st.integers(0, 6)) for _ in "uw"])
    check(steer, case)


def test_closed_gate() -> None:
    """While the gate is closed the op touches nothing, and opening it steers again."""
    case = make(6, 64)
    before = case.hidden.clone()
    op.cpu_gate.active = False
    steer(*case.args)
    assert same_bits(case.hidden, before)
    op.cpu_gate.active = True
    check(steer, case)


def test_reference_keeps_its_arguments() -> None:
    """The reference returns a new tensor of hidden's dtype."""
    case = make(6, 64, dtype=torch.float16)
    before = case.hidden.clone()
    assert steer_reference(*case.args).dtype == torch.float16
    assert same_bits(case.hidden, before)


def test_reference_by_hand() -> None:
    """One token worked out on paper: two ops that use all terms, and a limit."""
    case = _single(
        torch.tensor([[3.0, 4.0]]),
        [(1.0, 0.2, 0.5, 0), (0, 0, 0, 1.0)],
        vector=(1.0, 0.0),
        bounds=(-1.0, 2.0),
    )
    # x.w = 3, ||x|| = 5: d = 1 + 1 + 1.5 = 3.5; then x.w = 6.5, capped at 2: d = -4.5; sum -1
    assert steer_reference(*case.args).tolist() == [[2.0, 4.0]]
    halved = replace(case, limit=torch.full((2,), 0.1))  # ||d|| = 1, at most 0.1 * 5
    assert steer_reference(*halved.args).tolist() == [[2.5, 4.0]]


def _single(
    hidden: torch.Tensor,
    ops: list[tuple[float, float, float, float]],
    *,
    vector: tuple[float, ...] | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    limit: float = math.inf,
) -> Case:
    """All tokens in row 1, which has ``ops``, all with one vector (ones, unless given)."""
    coef = torch.tensor([(0.0,) * 6, (0.0,) * 6]).repeat(len(ops), 1, 1).transpose(0, 1)
    coef = coef.contiguous()
    coef[1] = torch.tensor([(*terms, *bounds) for terms in ops])
    width = hidden.shape[1]
    return Case(
        hidden=hidden,
        residual=None,
        bank=torch.tensor([vector or (1.0,) * width]),
        op_slots=torch.zeros(2, len(ops), 2, dtype=torch.int32),
        op_coef=coef,
        op_count=torch.tensor([0, len(ops)], dtype=torch.int32),
        limit=torch.full((2,), limit),
        token_row=torch.ones(hidden.shape[0], dtype=torch.int32),
    )
