"""What the checks share: the server, the vectors, how much of a difference is rounding."""

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hotwire_client import Client, GetReceiptsResponse, HotwireError, Node, Policy, Receipt
from hotwirectl.verify.answers import Answer
from hotwirectl.verify.api import Api, Ask
from hotwirectl.verify.vectors import Vectors

#: Shorter than a block of the cache, so that nothing of them is shared with anybody.
PROMPTS = ("The weather is", "My sister said", "In the town", "Once there was")

#: Log-probabilities of fp32 sums in another order differ by less (nats).
LEAST_ROUNDING = 1e-4
_MARGIN = 4.0
_NONE = Answer("", "")


@dataclass(slots=True)
class Stage:
    """A running server, and what verify has put there.

    nodes: those of the instance that answers at the address, once it is known. policy: the one in
    force. rounding: what two answers that ought to be equal may differ by, in nats. scale: at which
    steering shows in the middle layer, once it has been found. tops: how many log-probabilities
    the server tells for a token; 0 if it tells none, and texts are compared. baseline: what an
    unsteered request got at first.
    """

    api: Api
    client: Client
    model: str
    nodes: Sequence[Node]
    vectors: Vectors
    policy: Policy
    max_model_len: int | None = None
    quick: bool = False
    rounding: float = LEAST_ROUNDING
    scale: float = 0.0
    tops: int = 5
    baseline: Answer = _NONE

    @property
    def layers(self) -> int:
        """The number of blocks of the model."""
        return max((node.num_layers for node in self.nodes), default=0)

    @property
    def layer(self) -> int:
        """The layer in the middle."""
        return self.layers // 2

    @property
    def visible(self) -> float:
        """The least difference, in nats, that is surely none of rounding."""
        return _MARGIN * self.rounding

    def spec(self, scale: float | None = None, **more: Any) -> dict[str, Any]:
        """Returns a strict specification: the direction in the middle, unless more says otherwise.

        scale: the one that was found, if None.
        """
        asked = {"id": self.vectors.direction, "layer": self.layer, "strict": True, **more}
        return asked | {"scale": self.scale if scale is None else scale}

    def zero(self) -> dict[str, Any]:
        """Returns the same of the row of zeros."""
        return self.spec(1.0, id=self.vectors.zero)

    def complete(self, spec: object = None, prompt: str = PROMPTS[0], **more: Any) -> Answer:
        """Returns a short answer that shares no cache with any other; spec: None for unsteered.

        Raises:
            RefusedError: The specification is refused.
            ApiError: No completion came.
        """
        return self.api.complete(self.model, self.ask(spec, prompt, **more))

    def together(self, asks: Sequence[Ask]) -> list[Answer]:
        """Returns the answers to requests that are sent at once, in their order."""
        with ThreadPoolExecutor(len(asks)) as pool:
            return list(pool.map(lambda ask: self.api.complete(self.model, ask), asks))

    def ask(self, spec: object = None, prompt: str = PROMPTS[0], **more: Any) -> Ask:
        """Returns a request; one for nothing says so where the policy would steer it by default."""
        if spec is None and self.policy.default_spec:
            spec = []
        return Ask(prompt, spec, **{"salt": secrets.token_hex(8), "tops": self.tops, **more})

    def receipt(self, answer: Answer) -> Receipt | None:
        """Returns the receipt of a request that asked for steering, if an engine keeps one."""
        try:
            found: GetReceiptsResponse = self.client.get_receipts(answer.request_id)
        except HotwireError:
            return None
        return found.receipts[0]
