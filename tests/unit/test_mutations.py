"""What is desired is what is stored, whoever goes away in the middle of a change."""

import asyncio
import time
from pathlib import Path

from hotwired.fleet import Fleet
from hotwired.mutations import Mutations
from hotwired.registry import Change
from hotwired.staging import Caller
from hotwired.store import Store
from hotwired.v1 import steering_service_pb2 as pb


def test_a_node_that_goes_while_it_is_overtaken(tmp_path: Path) -> None:
    """Its task is cancelled in the middle of the write: the next change is stored all the same."""
    store = Store(tmp_path)
    store.open()
    apply = store._registry.apply

    def slowly(change: Change) -> None:
        time.sleep(0.1)
        apply(change)

    store._registry.apply = slowly  # type: ignore[method-assign]

    async def scenario() -> int:
        mutations = Mutations(Fleet(tmp_path), store)
        task = asyncio.create_task(mutations.overtake("node", 50))
        await asyncio.sleep(0.03)
        task.cancel()
        request = pb.SetPolicyRequest(policy={"strict": True})
        _, result = await mutations.set_policy(request, Caller("me", time.monotonic() + 5))
        return result.generation

    assert asyncio.run(scenario()) == store.desired.generation == 52
    store.close()
