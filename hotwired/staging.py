"""The first phase of a registration: every worker that must have a vector gets and checks it."""

import asyncio
import time
from dataclasses import dataclass

from hotwired.errors import (
    HotwireError,
    NodeDisarmed,
    NodeRejected,
    NodeStandalone,
    NodeUnreachable,
    RoleMissing,
    known,
)
from hotwired.fleet import Fleet, Instance
from hotwired.metrics.counted import refused
from hotwired.node_link import NodeLink, stage_seconds
from hotwired.snapshot import misfit
from hotwired.store import Store
from hotwired.upload import Upload
from hotwired.vector_file import check_fits


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and until when (monotonic seconds) the answer must be under way.

    peer: as gRPC names it. name: as the configuration does. max_vectors: how many names it may own;
    0 for any number.
    """

    peer: str
    until: float
    name: str = ""
    max_vectors: int = 0

    @property
    def seconds_left(self) -> float:
        """The seconds left."""
        return max(0.0, self.until - time.monotonic())


def targets(upload: Upload, fleet: Fleet) -> list[NodeLink]:
    """Returns the workers that must have a vector.

    Raises VectorShapeMismatch if it fits no instance though there is one, VectorNotFinite if a
    value is infinite in the dtype of a model that it fits.
    """
    known = [(i, i.facts) for i in fleet.instances() if answers(i)]
    fitting: list[Instance] = []
    misfits: list[HotwireError] = []
    for instance, facts in known:
        if facts is None:
            continue
        if (error := misfit(upload.vector, facts)) is not None:
            misfits.append(error)
        else:
            check_fits(
                upload.data,
                hidden_size=facts.hidden_size,
                num_layers=facts.num_layers,
                dtype=facts.dtype,
            )
            fitting.append(instance)
    if misfits and not fitting:
        raise misfits[0]
    return [w for i in fitting for w in i.workers if w.is_armed and not w.failures]


def answers(instance: Instance) -> bool:
    """Whether any process of an instance answers."""
    return any(not link.failures for link in instance.links)


async def stage_everywhere(
    upload: Upload, links: list[NodeLink], caller: Caller, store: Store
) -> None:
    """Stages a vector on workers. Raises NodeRejected, having undone the rest, if one refuses.

    A worker that doesn't answer refuses nothing: it gets the vector when it is back.
    """
    # Half of what is left, so that a worker that hangs leaves time to store and to answer.
    seconds = max(0.05, min(caller.seconds_left / 2, stage_seconds(len(upload.canonical))))
    revision = upload.vector.revision
    answers = await asyncio.gather(
        *(
            link.stage(revision, upload.canonical, seconds, validate_only=upload.validate_only)
            for link in links
        ),
        return_exceptions=True,
    )
    pairs = list(zip(links, answers, strict=True))
    refusals = [(n, a) for n, a in pairs if isinstance(a, BaseException) and not _is_away(a)]
    if refusals:
        # What a worker held before, a name points to by now, or another call is staging, is not
        # ours to take away.
        if not store.desired.names_of(revision) and store.pending[revision] <= 1:
            await _discard(revision, [link for link, answer in pairs if answer is False])
        raise _rejected(refusals)


async def _discard(revision: str, links: list[NodeLink]) -> None:
    await asyncio.gather(
        *(link.discard(lambda: [revision]) for link in links if revision in link.held),
        return_exceptions=True,
    )


def _is_away(answer: BaseException) -> bool:
    """Whether a worker said nothing of the vector: it is away, or changed its role meanwhile."""
    return isinstance(answer, NodeUnreachable | NodeDisarmed | NodeStandalone | RoleMissing)


def _rejected(refusals: list[tuple[NodeLink, BaseException]]) -> BaseException:
    link, exc = refusals[0]
    if not isinstance(exc, HotwireError):
        return exc
    for _, refusal in refusals:
        refused("vector", known(refusal))
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    return NodeRejected(
        f"node {link.name} refused the vector: {exc.message[:400]}{more}",
        metadata={
            **exc.metadata,
            "node": link.name,
            "cause": exc.reason,
            "nodes": str(len(refusals)),
        },
    )
