"""What came of each request that asked for steering, for whoever asks later by the request's id.

vLLM's engine has ids of its own. A client knows the id of its response, or the X-Request-Id it
sent: the OpenAI server puts "cmpl-" or "chatcmpl-" before the latter, which is its response's id,
then "-0" for the first prompt of a completion ("_0" for a chat's, if there are several), and each
step of a beam search appends its own number; the input processor appends eight random hex digits;
of several choices, each has its number and "_" before it all. A later input of a session has "/"
and a number after it, which is ours.
"""

from __future__ import annotations

import copy
import math
import re
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from hotwire_plugin.account import Account
from hotwire_plugin.decisions import Admitted, Ask
from hotwire_plugin.program import to_fp32
from hotwired import dose
from hotwired.v1 import receipt_pb2

STEERED = "steered"
UNSTEERED = "unsteered"

MAX_RECEIPTS = 10_000
MAX_WEIGHT = 200_000
"""The weight of what all receipts together refer to, a shared decision counted once: some 50 MB."""

MAX_ID = 1024
"""The characters of an id; a request with a longer one leaves no receipt."""

MAX_CALLER = 256
_ANSWER_BYTES = 2 << 20
_STEERED_TOO = (dose.CLAMPED, dose.WARNED, dose.UNMONITORED)


class Foreseen(NamedTuple):
    """What a frontend expects of a request.

    Attributes:
        outcome: as in a Receipt.
        generation: the snapshot it was decided by.
        reason: why it will not be steered; None if it will, or if there is nothing to do.
    """

    outcome: str
    generation: int
    reason: str | None


@dataclass(slots=True)
class Receipt:
    """What came of one request; the fields are those of hotwired.v1.Receipt.

    live_limit: infinite for none. tokens_steered: None for unknown.
    """

    request_id: str
    generation: int
    caller: str
    by_default: bool
    outcome: str
    reason: str | None
    message: str
    account: Account | None
    live_limit: float
    admit_time: float
    finished: bool = False
    tokens_steered: int | None = None
    held_back: bool = False

    @classmethod
    def of(
        cls, request_id: str, ask: Ask, admitted: Admitted, generation: int, now: float
    ) -> Receipt:
        """Return the receipt of a request that was just admitted; now: in seconds of the epoch."""
        limit = admitted.program.limit if admitted.program else math.inf
        return cls(
            *(request_id, generation, ask.caller[:MAX_CALLER], ask.by_default),
            *(outcome_of(admitted), admitted.reason, admitted.message),
            *(admitted.account, limit, now),
        )


def outcome_of(admitted: Admitted) -> str:
    """Return what a decision comes to, in the words of the dose where it has any."""
    if admitted.dose_outcome == dose.SHADOWED:
        return dose.SHADOWED
    if admitted.program is None:
        return UNSTEERED
    return admitted.dose_outcome if admitted.dose_outcome in _STEERED_TOO else STEERED


class Receipts:
    """The last receipts, within bounds. Thread-safe; keeping and finishing one takes no search.

    most: how many. most_weight: how much their different accounts may weigh together.
    """

    def __init__(self, most: int = MAX_RECEIPTS, most_weight: int = MAX_WEIGHT) -> None:
        self._most, self._most_weight = most, most_weight
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Receipt] = OrderedDict()
        # How many receipts use an account, by its identity, which lasts as long as one does.
        self._users: Counter[int] = Counter()
        self._weight = 0

    def put(self, receipt: Receipt) -> None:
        """Keep a receipt, in place of an older one of its id, and forget what is too much."""
        if len(receipt.request_id) > MAX_ID:
            return
        with self._lock:
            if (older := self._kept.pop(receipt.request_id, None)) is not None:
                self._let_go(older.account)
            self._kept[receipt.request_id] = receipt
            self._take(receipt.account)
            while len(self._kept) > self._most or (self._weight > self._most_weight and self._kept):
                self._let_go(self._kept.popitem(last=False)[1].account)

    def finish(self, request_id: str, tokens_steered: int | None, *, held_back: bool) -> None:
        """Complete a request's receipt, if it has one that is not complete."""
        with self._lock:
            receipt = self._kept.get(request_id)
            if receipt is not None and not receipt.finished:
                receipt.finished = True
                receipt.tokens_steered = tokens_steered
                receipt.held_back = held_back

    def find(self, request_id: str) -> list[Receipt]:
        """Return copies of the receipts of a request, oldest first; see the module for its id."""
        with self._lock:
            ids = list(self._kept)
        # Not under the lock: it may take a few milliseconds.
        pattern = _pattern(request_id)
        mine = [each for each in ids if request_id in each and pattern.fullmatch(each)]
        with self._lock:
            found = [self._kept[each] for each in mine if each in self._kept]
            return [copy.copy(receipt) for receipt in found]

    def _take(self, account: Account | None) -> None:
        if account is not None:
            self._users[id(account)] += 1
            if self._users[id(account)] == 1:
                self._weight += account.weight

    def _let_go(self, account: Account | None) -> None:
        if account is not None:
            self._users[id(account)] -= 1
            if not self._users[id(account)]:
                del self._users[id(account)]
                self._weight -= account.weight


def _pattern(request_id: str) -> re.Pattern[str]:
    """Return what matches the engine's ids of a request that a client calls so."""
    asked = re.escape(request_id)
    chat = rf"(?:chatcmpl-|generate-tokens-)?{asked}(?:_[0-9]+)?"
    completion = rf"(?=cmpl-)(?:cmpl-)?{asked}-[0-9]+"
    after = r"(?:-[0-9a-f]{32}-beam-[0-9]+)?(?:-[0-9a-f]{8})?(?:/[0-9]+)?"
    return re.compile(rf"(?:[0-9]+_)?(?:{chat}|{completion}){after}")


def messages(receipts: list[Receipt]) -> tuple[list[receipt_pb2.Receipt], bool]:
    """Return the first receipts as messages, as many as an answer holds, and whether some are not.

    The first is always there.
    """
    found: list[receipt_pb2.Receipt] = []
    room = _ANSWER_BYTES
    for receipt in receipts:
        made = _message(receipt)
        room -= made.ByteSize()
        if room < 0 and found:
            return found, True
        found.append(made)
    return found, False


def _message(receipt: Receipt) -> receipt_pb2.Receipt:
    account, steered = receipt.account, receipt.reason is None
    message = receipt_pb2.Receipt(
        request_id=_text(receipt.request_id),
        generation=receipt.generation,
        caller=_text(receipt.caller),
        by_default=receipt.by_default,
        outcome=receipt.outcome,
        reason=receipt.reason or "",
        message=receipt.message,
        ops=_ops(account, steered=steered) if account else (),
        relative_dose=account.relative_dose if account else None,
        worst_layer=account.worst_layer if account else None,
        total_relative_dose=account.total_relative_dose if account else None,
        max_live_relative_dose=None if math.isinf(receipt.live_limit) else receipt.live_limit,
        finished=receipt.finished,
        tokens_steered=receipt.tokens_steered,
        held_back=receipt.held_back,
    )
    message.admit_time.FromNanoseconds(round(receipt.admit_time * 1e9))
    return message


def _text(given: str) -> str:
    """Return what a client gave as text that a message can hold: JSON has half characters."""
    return given.encode("utf-8", "replace").decode("utf-8")


def _ops(account: Account, *, steered: bool) -> list[receipt_pb2.ReceiptOp]:
    scales = account.scales_in_force
    return [
        receipt_pb2.ReceiptOp(
            vector=vector,
            revision=op.revision,
            layer=op.layer,
            site=op.site,
            op=op.op,
            scale_asked=op.scale,
            scale_applied=to_fp32(scale) if steered else 0.0,
            target=target,
            target_revision=op.target,
        )
        for vector, target, op, scale in zip(
            account.vectors, account.targets, account.ops, scales, strict=True
        )
    ]
