"""What came of a request, asked of every engine there is."""

import asyncio

from hotwired.errors import HotwireError, NodeUnreachable, ReceiptNotFound, shown
from hotwired.fleet import Fleet
from hotwired.node.v1 import node_pb2
from hotwired.node_link import NodeLink
from hotwired.v1 import steering_service_pb2 as pb

ASK_SECONDS = 1.0
# An answer stays well below the 4 MiB that a client takes unless told otherwise.
_ANSWER_BYTES = 2 << 20


async def find(fleet: Fleet, request_id: str) -> pb.GetReceiptsResponse:
    """Returns the receipts that the engines keep, those that took their vectors from elsewhere too.

    Raises ReceiptNotFound if no engine has any, NodeUnreachable if one might that did not answer.
    """
    engines = [link for link in fleet.ordered() if link.is_engine]
    answers = await asyncio.gather(*(_asked(link, request_id) for link in engines))
    found = pb.GetReceiptsResponse()
    for link, answer in zip(engines, answers, strict=True):
        if answer is not None:
            _put(found, _name(link), answer)
    if not found.receipts:
        silent = [
            link.name for link, answer in zip(engines, answers, strict=True) if answer is None
        ]
        raise _none(request_id, silent)
    return found


async def _asked(link: NodeLink, request_id: str) -> node_pb2.GetReceiptsResponse | None:
    """Returns an engine's answer, None if it has none: its state says why."""
    try:
        return await link.fetch_receipts(request_id, ASK_SECONDS)
    except HotwireError:
        return None


def _name(link: NodeLink) -> str:
    described = link.described
    return f"{described.instance_id}/{described.dp_rank}" if described else link.name


def _put(found: pb.GetReceiptsResponse, engine: str, answer: node_pb2.GetReceiptsResponse) -> None:
    """Adds an engine's receipts, as many as there is room for."""
    found.truncated |= answer.truncated
    room = _ANSWER_BYTES - found.ByteSize()
    for receipt in answer.receipts:
        receipt.engine = engine
        room -= receipt.ByteSize()
        if room < 0 and found.receipts:
            found.truncated = True
            return
        found.receipts.append(receipt)


def _none(request_id: str, silent: list[str]) -> HotwireError:
    metadata = {"request_id": shown(request_id)}
    if silent:
        nodes = ", ".join(silent)
        return NodeUnreachable(
            f"no engine that answered has a receipt of request {shown(request_id)}; "
            f"no answer came from {nodes}",
            metadata=metadata | {"nodes": nodes},
        )
    return ReceiptNotFound(
        f"no engine has a receipt of request {shown(request_id)}", metadata=metadata
    )
