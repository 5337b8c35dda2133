"""The per-step fill maps each token to the row of what acts on it, and nothing else."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotwire_plugin import op
from hotwire_plugin.bank import Bank
from hotwire_plugin.fill import StepFill, TokenMap
from hotwire_plugin.positions import Positions
from hotwire_plugin.program import Program, ProgramOp
from hotwire_plugin.rows import ProgramRows
from hotwire_plugin.shape import Place

REVISION = "a" * 64
MISSING = "d" * 64
UNREADABLE = "e" * 64


def program(scope: str = "all", scale: float = 1.0, revision: str = REVISION) -> str:
    """Return a program of one operation, encoded."""
    return Program((ProgramOp(revision, 0, scale, "add", scope),)).encode()


def fill_of(rows: int = 17) -> StepFill:
    """Return a fill of a model with one layer, 4 wide."""

    def load(revision: str, layer: int) -> np.ndarray:
        if revision == UNREADABLE:
            raise OSError("the memory is gone")
        if revision != REVISION:
            raise KeyError(revision)
        return np.ones(4, dtype=np.float32)

    cpu = torch.device("cpu")
    table = ProgramRows(places=[Place(0)], rows=rows, bank=Bank(9, 4, cpu), load_row=load)
    return StepFill(table, TokenMap(64, cpu))


def step(fill: StepFill, *spans: tuple[str, int, int, int], enabled: bool = True) -> list[int]:
    """Run one step of (request, computed, scheduled, prompt_len) spans; return the token map."""
    ids = [s[0] for s in spans]
    start = np.cumsum([0, *(s[2] for s in spans)]).astype(np.int32)
    computed = np.array([s[1] for s in spans], dtype=np.int32)
    prompt = np.array([s[3] for s in spans], dtype=np.int32)
    fill.step(ids, start, computed, prompt, enabled=enabled)
    return fill._tokens.rows.tolist()


def rows_of(fill: StepFill, request: str) -> tuple[int, int]:
    """Return a live request's prompt row and generated row."""
    live = fill._live[request]
    return live.prompt.row, live.generated.row


def test_only_the_steered_request_of_a_batch_is_mapped() -> None:
    """A batchmate's tokens, and the padding behind the last token, stay at row 0."""
    fill = fill_of()
    fill.begin("s", program())
    mapped = step(fill, ("u", 0, 3, 3), ("s", 0, 2, 2), ("v", 5, 1, 5))
    row = rows_of(fill, "s")[0]
    assert mapped == [0, 0, 0, row, row] + [0] * 59
    assert fill.counters.steered_tokens == 2


def test_a_prompt_tail_of_one_token_is_prompt() -> None:
    """A decode-only program leaves a chunked prefill's last, one-token chunk alone."""
    fill = fill_of()
    fill.begin("s", program("generated"))
    assert step(fill, ("s", 7, 1, 8))[0] == 0
    assert step(fill, ("s", 8, 1, 8))[0] == rows_of(fill, "s")[1] > 0


def test_a_verified_draft_is_generated_and_a_resumed_prefill_is_both() -> None:
    """Phase comes from absolute position: spans of several tokens can be generated, or mixed."""
    fill = fill_of()
    fill.begin("s", program("generated"))
    row = 1 + max(0, *rows_of(fill, "s"))
    mapped = step(fill, ("s", 8, 3, 8))
    row = rows_of(fill, "s")[1]
    assert mapped[:3] == [row] * 3
    assert step(fill, ("s", 0, 10, 8))[:11] == [0] * 8 + [row, row] + [0]


def test_a_prompt_scope_ends_with_the_prompt() -> None:
    """A prompt-only program steers no generated token."""
    fill = fill_of()
    fill.begin("s", program("prompt"))
    assert step(fill, ("s", 2, 4, 4))[:4] == [rows_of(fill, "s")[0]] * 2 + [0, 0]


def test_shrinking_batches_leave_no_tail() -> None:
    """Tokens that only the step before had are back at row 0."""
    fill = fill_of()
    fill.begin("s", program())
    step(fill, ("s", 0, 9, 9))
    row = rows_of(fill, "s")[0]
    assert step(fill, ("s", 9, 1, 9)) == [row] + [0] * 63


def test_the_kill_switch_and_dummy_runs_map_nothing() -> None:
    """A step whose stamp says so, and any dummy run, steers no token; the request goes on."""
    fill = fill_of()
    fill.begin("s", program())
    assert any(step(fill, ("s", 0, 2, 2)))
    assert not any(step(fill, ("s", 2, 1, 2), enabled=False))
    assert not op.cpu_gate.active
    assert step(fill, ("s", 3, 1, 2))[0]
    fill.quiet()
    assert not fill._tokens.rows.any()


def test_a_bad_program_touches_its_own_request_only() -> None:
    """A malformed program or an unstaged revision: that request unsteered, counted, others not."""
    fill = fill_of()
    fill.begin("bad", "{")
    fill.begin("gone", program(revision=MISSING))
    fill.begin("good", program())
    mapped = step(fill, ("bad", 0, 1, 1), ("gone", 0, 1, 1), ("good", 0, 1, 1))
    assert mapped[:3] == [0, 0, rows_of(fill, "good")[0]]
    assert fill.errors == {"PROGRAM_INVALID": 1, "REVISION_NOT_STAGED": 1}


def test_a_vector_that_cannot_be_read_costs_its_own_request_only() -> None:
    """Whatever the loading raises: the step goes on, and no row or slot is lost."""
    fill = fill_of(rows=3)
    for n in range(5):
        fill.begin("bad", program(revision=UNREADABLE))
        fill.begin("good", program())
        mapped = step(fill, ("bad", n, 1, 1), ("good", n, 1, 1))
        assert mapped[:2] == [0, rows_of(fill, "good")[0]]
        fill.end("good")
    assert fill.errors == {"INTERNAL": 5}
    assert fill._rows._bank.in_use == 1


def test_rows_come_back_when_requests_end() -> None:
    """However many requests pass, no row is lost; ending twice or an unknown one does no harm."""
    fill = fill_of(rows=3)
    for n in range(50):
        fill.begin(f"r{n}", program(scale=1.0 + n))
        assert step(fill, (f"r{n}", 0, 1, 1))[0] > 0
        fill.end(f"r{n}")
        fill.end(f"r{n}")
    fill.end("never seen")
    assert fill._rows.in_use == 0


def test_more_live_requests_than_rows_take_turns() -> None:
    """Requests that sit a step out lend their rows, and get one again when they are back."""
    fill = fill_of(rows=3)
    for n in range(4):
        fill.begin(f"r{n}", program(scale=1.0 + n))
    for n in (0, 1, 2, 3, 0, 2, 1, 3):
        row = step(fill, (f"r{n}", 0, 1, 1))[0]
        assert fill._rows.op_coef[0, row, 0, 0].item() == 1.0 + n


def test_without_a_live_program_a_step_writes_nothing() -> None:
    """The idle step neither touches the map nor counts as a fill."""
    fill = fill_of()
    step(fill, ("u", 0, 3, 3))
    assert fill.counters.steps == 0
    assert not op.cpu_gate.active


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 6), st.integers(1, 20), st.sampled_from("apgu")),
    min_size=1,
    max_size=8,
)


@given(SPANS)
def test_the_map_is_what_a_token_by_token_rule_says(spans: list[tuple[int, int, int, str]]) -> None:
    """For any mix of spans and scopes, each token's row is that of its own position's phase."""
    fill = fill_of()
    scopes = {"a": "all", "p": "prompt", "g": "generated"}
    for n, (_, _, _, kind) in enumerate(spans):
        if kind in scopes:
            fill.begin(str(n), program(scopes[kind], scale=1.0 + n))
    mapped = step(fill, *((str(n), c, k, p) for n, (c, k, p, _) in enumerate(spans)))
    want = []
    for n, (computed, scheduled, prompt, kind) in enumerate(spans):
        pair = rows_of(fill, str(n)) if kind in scopes else (0, 0)
        want += [pair[position >= prompt] for position in range(computed, computed + scheduled)]
    assert mapped == want + [0] * (64 - len(want))


@pytest.fixture(autouse=True)
def _open_gate() -> Iterator[None]:
    yield
    op.cpu_gate.active = True


def test_a_request_that_starts_where_nothing_changes_any_more() -> None:
    """From a cached prompt, or resumed: its first step is steered, though its row is there already.

    To be laid out settles it; that must not count before the next step.
    """
    fill = fill_of()
    where = Positions(exclude=((0, 0),))
    raw = Program((ProgramOp(REVISION, 0, 1.0, "add", "all", where),)).encode()
    fill.begin("a", raw)
    first = step(fill, ("a", 0, 4, 4))[:4]
    assert first[0] == 0
    assert 0 not in first[1:]
    fill.begin("b", raw)
    assert step(fill, ("b", 2, 2, 4))[:2] == first[1:3]
    assert step(fill, ("b", 4, 1, 4))[:1] == first[1:2]
