"""Receipts are asked of every engine, and one that fails hides nothing."""

import time
from typing import Any

import grpc

from hotwired import errors
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1.receipt_pb2 import Receipt, ReceiptOp
from tests.daemon.harness import Daemon, Fleet, eventually, refused


def receipt(request_id: str, ops: int = 0) -> Receipt:
    """Returns a receipt as an engine keeps it."""
    found = [ReceiptOp(vector="joy", revision="a" * 64)] * ops
    return Receipt(request_id=request_id, outcome="steered", ops=found)


def ask(daemon: Daemon, request_id: str) -> pb.GetReceiptsResponse:
    """Asks the daemon for a request's receipts."""
    request = pb.GetReceiptsRequest(request_id=request_id)
    return daemon.stub.GetReceipts(request, timeout=5)


def found(daemon: Daemon, request_id: str) -> list[Any]:
    """Returns the receipts, none if the daemon has no answer yet."""
    try:
        return list(ask(daemon, request_id).receipts)
    except grpc.RpcError:
        return []


def test_every_engine_is_asked_and_named(fleet: Fleet) -> None:
    """Data-parallel ranks and instances alike, a standalone one too, and workers are not."""
    daemon = fleet.daemon()
    mine = [receipt("r")]
    fleet.fake("engine", receipts=mine)
    fleet.fake("engine", dp_rank=1, receipts=[receipt("r"), receipt("other")])
    fleet.fake("engine", instance_id="i2", receipts=mine, standalone=True)
    fleet.fake("engine", instance_id="i3")
    worker = fleet.fake("worker", receipts=mine)
    eventually(lambda: len(found(daemon, "r")) == 3)
    assert [each.engine for each in found(daemon, "r")] == ["i1/0", "i1/1", "i2/0"]
    assert "GetReceipts" not in worker.calls
    missing = refused(lambda: ask(daemon, "unknown"))
    assert (missing.code, missing.reason) == ("NOT_FOUND", "RECEIPT_NOT_FOUND")
    assert missing.metadata == {"request_id": "'unknown'"}
    assert refused(lambda: ask(daemon, "")).reason == "RECEIPT_NOT_FOUND"


def test_an_engine_that_fails_hides_nothing_that_others_know(fleet: Fleet) -> None:
    """It costs a second at most; and without it, nobody says that there is no receipt."""
    daemon = fleet.daemon()
    hanging = fleet.fake("engine", receipts=[receipt("theirs")])
    refusing = fleet.fake("engine", instance_id="i2", receipts=[receipt("its")])
    fleet.fake("engine", instance_id="i3", receipts=[receipt("r")])
    for request_id in ("theirs", "its", "r"):
        eventually(lambda i=request_id: found(daemon, i))
    hanging.delay["GetReceipts"] = 3.0
    refusing.refuse["GetReceipts"] = lambda: errors.Internal("broken")
    before = time.monotonic()
    assert [each.engine for each in found(daemon, "r")] == ["i3/0"]
    assert time.monotonic() - before < 2.5
    silent = refused(lambda: ask(daemon, "theirs"))
    assert (silent.code, silent.reason) == ("UNAVAILABLE", "NODE_UNREACHABLE")
    assert silent.metadata["nodes"] == "i1/engine-0-0-0, i2/engine-0-0-0"


def test_an_answer_fits_into_what_a_client_takes(fleet: Fleet) -> None:
    """What has no room is left out, and the answer says so."""
    daemon = fleet.daemon()
    large = receipt("r", ops=8000)
    fleet.fake("engine", receipts=[large] * 3)
    fleet.fake("engine", dp_rank=1, receipts=[large, receipt("second")])
    eventually(lambda: found(daemon, "r") and found(daemon, "second"))
    answer = ask(daemon, "r")
    assert answer.truncated
    assert 0 < len(answer.receipts) < 4
    assert answer.ByteSize() < 4 << 20
