"""Receipts: what they say of each outcome, by which ids they are found, and what is kept."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from hotwire_plugin.admission import Admission, Prompt
from hotwire_plugin.program import CALLER_KEY, SPEC_KEY, to_fp32
from hotwire_plugin.receipts import MAX_CALLER, MAX_ID, Foreseen, Receipt, Receipts, messages
from hotwire_plugin.shape import ModelShape
from hotwired.dose import DoseMode, DosePolicy
from hotwired.v1 import receipt_pb2
from tests.support.admissions import CALM, JOY, LAYERS, admission, limit

UUID = "0123456789abcdef" * 2


def receipt_of(
    spec: object, *, prompt: Prompt | None = None, caller: str | None = None, **policy: object
) -> receipt_pb2.Receipt:
    """Return the receipt of a request under a policy."""
    subject = admission(**policy)  # type: ignore[arg-type]
    return admitted(subject, spec, caller=caller, prompt=prompt)


def admitted(
    subject: Admission, spec: object, *, caller: str | None = None, prompt: Prompt | None = None
) -> receipt_pb2.Receipt:
    """Admit a request and return its receipt."""
    subject.admit(asking(spec, caller), "r", prompt)
    ((receipt,), truncated) = messages(subject.receipts.find("r"))
    assert not truncated
    return receipt


def asking(spec: object, caller: str | None = None) -> dict[str, Any]:
    """Return the extra_args of a request that asks for ``spec``; None is for nothing."""
    label = {} if caller is None else {CALLER_KEY: caller}
    if spec is None:
        return label
    return {SPEC_KEY: spec if isinstance(spec, str) else json.dumps(spec), **label}


def test_a_steered_request() -> None:
    """Name, revision, place and scale of each operation in the order asked; nothing measured."""
    receipt = receipt_of(
        [
            {"id": "joy", "layer": [12, 11], "scale": 0.1},
            {"id": "calm", "layer": 3, "op": "ablate"},
        ],
        caller="team",
    )
    assert (receipt.outcome, receipt.reason, receipt.message) == ("steered", "", "")
    assert (receipt.generation, receipt.caller, receipt.by_default) == (1, "team", False)
    assert [(op.vector, op.revision, op.layer, op.site, op.op) for op in receipt.ops] == [
        ("joy", JOY, 11, "post", "add"),
        ("joy", JOY, 12, "post", "add"),
        ("calm", CALM, 3, "post", "ablate"),
    ]
    assert [op.scale_asked for op in receipt.ops] == [0.1, 0.1, 1.0]
    assert [op.scale_applied for op in receipt.ops] == [to_fp32(0.1), to_fp32(0.1), 1.0]
    for name in ("relative_dose", "total_relative_dose", "worst_layer", "max_live_relative_dose"):
        assert not receipt.HasField(name)
    assert receipt.admit_time.seconds > 1_700_000_000
    assert not receipt.finished
    assert not receipt.HasField("tokens_steered")


def test_a_swap_names_both_its_vectors() -> None:
    """The one whose component is taken, and the one that takes it over."""
    receipt = receipt_of({"id": "joy", "layer": 11, "op": "swap", "to": "calm"})
    (op,) = receipt.ops
    assert (op.vector, op.revision) == ("joy", JOY)
    assert (op.target, op.target_revision) == ("calm", CALM)
    (plain,) = receipt_of({"id": "joy", "layer": 11}).ops
    assert (plain.target, plain.target_revision) == ("", "")


def test_doses_are_those_asked_for_and_scales_those_in_force() -> None:
    """A clamped request has less than it asked for, and its receipt says by how much."""
    receipt = receipt_of({"id": "joy", "layer": [10, 11], "scale": 5.0}, dose=limit(DoseMode.CLAMP))
    assert receipt.outcome == "clamped"
    assert (receipt.relative_dose, receipt.worst_layer) == (1.0, 10)
    assert receipt.total_relative_dose == 2.0
    assert [op.scale_asked for op in receipt.ops] == [5.0, 5.0]
    assert all(2.49 < op.scale_applied <= 2.5 for op in receipt.ops)


WARNED = limit(DoseMode.WARN)
UNMONITORED = DosePolicy(max_relative_dose=0.5, allow_unmonitored=True)


@pytest.mark.parametrize(
    ("spec", "policy", "outcome", "reason", "measured"),
    [
        ({"id": "joy"}, {"dose": limit()}, "steered", "", True),
        ({"id": "joy", "scale": 9}, {"dose": WARNED}, "warned", "", True),
        ({"id": "joy"}, {"dose": UNMONITORED}, "unmonitored", "", False),
        ({"id": "joy", "scale": 9}, {"dose": limit()}, "unsteered", "DOSE_EXCEEDED", True),
        ({"id": "joy"}, {"dose": limit(DoseMode.SHADOW)}, "shadowed", "DOSE_SHADOWED", True),
        ({"id": "nobody"}, {}, "unsteered", "VECTOR_NOT_FOUND", False),
        ({"id": "joy"}, {"kill_switch": True}, "unsteered", "KILL_SWITCH", False),
        ("{", {}, "unsteered", "SPEC_NOT_JSON", False),
        ("[]", {}, "unsteered", "", False),
        ({"id": "joy", "scale": 0}, {}, "unsteered", "", False),
    ],
)
def test_outcomes(
    spec: object, policy: dict[str, object], outcome: str, reason: str, *, measured: bool
) -> None:
    """In the words of the dose, with the reasons of the statistics; what is not steered has 0."""
    receipt = receipt_of(spec, **policy)
    assert (receipt.outcome, receipt.reason) == (outcome, reason)
    assert bool(receipt.message) == bool(reason)
    assert receipt.HasField("relative_dose") == measured
    if reason:
        assert {op.scale_applied for op in receipt.ops} <= {0.0}
        assert bool(receipt.ops) == reason.startswith("DOSE")


def test_what_the_prompt_decides_is_in_the_receipt() -> None:
    """A clamped request for which there is no room is unsteered, not clamped."""
    subject = admission(model=ModelShape(LAYERS, slots=1), dose=limit(DoseMode.CLAMP))
    receipt = admitted(subject, {"id": "joy", "scale": 9.0})
    assert (receipt.outcome, receipt.reason) == ("unsteered", "SLOTS_EXHAUSTED")
    assert {op.scale_applied for op in receipt.ops} == {0.0}
    assert receipt.relative_dose > 0


def test_the_default_leaves_receipts_and_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Requests that ask for nothing leave a receipt only if the policy asks for them."""
    subject = admission(default_spec='{"id": "joy"}', live_limit=0.25)
    with caplog.at_level(logging.INFO, "hotwire_plugin.admission"):
        receipt = admitted(subject, None)
    assert (receipt.by_default, receipt.outcome) == (True, "steered")
    assert receipt.max_live_relative_dose == 0.25
    assert not caplog.records
    nothing = admission()
    nothing.admit({"other": 1}, "r")
    assert nothing.receipts.find("r") == []


def test_each_that_asks_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """With its outcome and fields if it is steered, the warning alone if it is not."""
    subject = admission(dose=limit())
    with caplog.at_level(logging.INFO, "hotwire_plugin.admission"):
        admitted(subject, {"id": "joy", "layer": 10}, caller="team\n")
        admitted(subject, {"id": "nobody"})
    steered, unsteered = caplog.records
    assert (steered.levelname, unsteered.levelname) == ("INFO", "WARNING")
    assert steered.getMessage() == "request 'r': steered"
    fields = steered.__dict__
    assert (fields["generation"], fields["outcome"], fields["ops"]) == (1, "steered", 1)
    assert (fields["caller"], fields["relative_dose"]) == ("team\\n", 0.2)


def test_a_finished_request_says_how_many_tokens() -> None:
    """Once: what comes later, by the same id, changes nothing."""
    subject = admission()
    subject.admit(asking({"id": "joy"}), "r")
    subject.finish("r", 7, held_back=True)
    subject.finish("r", 9)
    (receipt,) = subject.receipts.find("r")
    assert (receipt.finished, receipt.tokens_steered, receipt.held_back) == (True, 7, True)
    subject.finish("unknown", 3)


FOUND_BY = {
    "cmpl-abc-0-0a1b2c3d": ("cmpl-abc", "abc", "cmpl-abc-0", "cmpl-abc-0-0a1b2c3d"),
    "cmpl-abc-12-0a1b2c3d": ("cmpl-abc", "abc", "cmpl-abc-12"),
    "cmpl-abc-0": ("cmpl-abc", "abc"),
    "chatcmpl-abc-0a1b2c3d": ("chatcmpl-abc", "abc"),
    "chatcmpl-abc_3-0a1b2c3d": ("chatcmpl-abc", "abc", "chatcmpl-abc_3"),
    "chatcmpl-abc": ("chatcmpl-abc", "abc"),
    "1_cmpl-abc-0-0a1b2c3d": ("cmpl-abc", "abc", "cmpl-abc-0"),
    "15_chatcmpl-abc-0a1b2c3d": ("chatcmpl-abc", "abc"),
    "resp_abc_0-0a1b2c3d": ("resp_abc",),
    f"cmpl-abc-0-{UUID}-beam-2-0a1b2c3d": ("cmpl-abc", "abc", "cmpl-abc-0"),
    f"chatcmpl-abc-{UUID}-beam-0-0a1b2c3d": ("chatcmpl-abc", "abc"),
    "abc-0a1b2c3d/3": ("abc",),
    "cmpl-a.b*c-0-0a1b2c3d": ("a.b*c",),
    "7-0a1b2c3d": ("7",),
}
NOT_BY = ("", "ab", "bc", "-", "cmpl-", "0", "a", "cmpl-ab", "cmpl", "chatcmpl", "a.b", ".*", "2")


@pytest.mark.parametrize("engine_id", FOUND_BY)
def test_ids_that_clients_have(engine_id: str) -> None:
    """The response's id, the X-Request-Id and the engine's id find it; parts of them do not."""
    receipts = Receipts()
    receipts.put(bare(engine_id))
    for asked in (*FOUND_BY[engine_id], engine_id):
        assert [r.request_id for r in receipts.find(asked)] == [engine_id], asked
    for asked in NOT_BY:
        assert receipts.find(asked) == [], asked


def test_a_client_that_numbers_its_requests_gets_its_own() -> None:
    """Ids that differ by what vLLM might have appended are told apart, but for a bare engine's."""
    receipts = Receipts()
    for engine_id in ("chatcmpl-a-0a1b2c3d", "chatcmpl-a-0-0a1b2c3d", "cmpl-a-0-0-0a1b2c3d"):
        receipts.put(bare(engine_id))
    assert [r.request_id for r in receipts.find("a")] == ["chatcmpl-a-0a1b2c3d"]
    assert [r.request_id for r in receipts.find("a-0")] == [
        "chatcmpl-a-0-0a1b2c3d",
        "cmpl-a-0-0-0a1b2c3d",
    ]


def test_choices_have_receipts_of_their_own_in_order() -> None:
    """As many as there are, oldest first; an id that comes again replaces what it was."""
    receipts = Receipts()
    ids = [f"{n}_cmpl-x-0-0a1b2c3d" for n in range(3)]
    for engine_id in (*ids, ids[0]):
        receipts.put(bare(engine_id))
    assert [r.request_id for r in receipts.find("cmpl-x")] == [ids[1], ids[2], ids[0]]


def bare(request_id: str) -> Receipt:
    """Return a receipt that says next to nothing."""
    return Receipt(request_id, 1, "", False, "unsteered", None, "", None, float("inf"), 0.0)


def test_memory_is_bounded_by_number_weight_and_text() -> None:
    """The oldest go first; one decision's operations count once, however many share it."""
    subject = admission()
    subject.receipts = few = Receipts(most=3, most_weight=25)
    for n in range(5):
        subject.admit(asking({"id": "joy", "scale": 1}), f"r{n}")
    assert [bool(few.find(f"r{n}")) for n in range(5)] == [False, False, True, True, True]
    subject.admit(asking({"id": "joy", "scale": 2}), "r5")
    assert [bool(few.find(f"r{n}")) for n in range(3, 6)] == [True, True, True]
    subject.admit(asking({"id": "joy", "scale": 3}), "r6")
    assert [bool(few.find(f"r{n}")) for n in range(4, 7)] == [False, True, True]
    subject.admit(asking({"id": "calm", "layer": "0-29"}), "big")
    assert [bool(few.find(i)) for i in ("r5", "r6", "big")] == [False] * 3
    subject.admit(asking({"id": "joy", "scale": 1}), "r7")
    assert few.find("r7")
    ranges = [[n, n + 1] for n in range(0, 60, 3)]
    subject.admit(asking({"id": "calm", "layer": "0-9", "positions": ranges}), "ranges")
    assert few.find("ranges") == few.find("r7") == []
    subject.admit(asking({"id": "joy"}), "x" * (MAX_ID + 1))
    assert few.find("x" * (MAX_ID + 1)) == []
    assert admitted(admission(), {"id": "joy"}, caller="c" * (MAX_CALLER + 1)).caller == ""


def test_what_a_message_cannot_hold_is_replaced() -> None:
    """JSON can name half a character, which protobuf would refuse."""
    assert admitted(admission(), {"id": "joy"}, caller="a\ud800").caller == "a?"


def test_an_answer_is_cut_to_what_a_client_takes() -> None:
    """It says so, and has one receipt at least."""
    subject = admission()
    spec = [{"id": "joy", "layer": list(range(10, 20)), "scale": 0.01}] * 8
    for n in range(300):
        subject.admit(asking(spec), f"{n}_cmpl-x-0-0a1b2c3d")
    found, truncated = messages(subject.receipts.find("cmpl-x"))
    assert truncated
    assert 0 < len(found) < 300
    assert sum(r.ByteSize() for r in found) < 3 << 20


def test_many_threads() -> None:
    """Puts, ends and look-ups beside each other leave the last ones, all ended."""
    threads, each = 4, 300
    receipts = Receipts(most=100)

    def work(thread: int) -> None:
        for n in range(each):
            receipts.put(bare(f"{thread}-{n}"))
            receipts.finish(f"{thread}-{n}", n, held_back=False)
            receipts.find(f"{thread}-{n}")

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    left = [r for t in range(threads) for n in range(each) for r in receipts.find(f"{t}-{n}")]
    assert len(left) == 100
    assert all(r.finished for r in left)


def test_what_a_frontend_foresees() -> None:
    """The outcome that the engine would come to, and no trace of it in counts or receipts."""
    subject = admission(dose=limit())
    assert subject.foresee(None) is None
    assert subject.foresee(asking({"id": "joy"})) == Foreseen("steered", 1, None)
    exceeded = Foreseen("unsteered", 1, "DOSE_EXCEEDED")
    assert subject.foresee(asking({"id": "joy", "scale": 9})) == exceeded
    sets = [{"id": "joy", "layer": 10 + n, "from_generated": n, "scale": 0.1} for n in range(9)]
    foreseen = subject.foresee(asking(sets), Prompt(3))
    assert foreseen == Foreseen("unsteered", 1, "TOO_MANY_SETS")
    assert subject.report().requests_total == 0
    assert subject.receipts.find("") == []
