"""The vectors that verify registers for its own requests, and removes again."""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from safetensors.numpy import save

from hotwire_client import Client, HotwireError, NotFoundError, RegisterVectorResponse, Vector
from hotwirectl import views

#: Names that begin so are verify's.
PREFIX = "hotwire-verify-"

#: Longer than a run takes; what a killed run leaves is of no use to anyone from then on.
TTL_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Vectors:
    """What is registered: a random direction of length 1 and a row of zeros, for any layer.

    unknown: a name that is not registered. settled: whether every node uses them.
    """

    direction: str
    zero: str
    unknown: str
    settled: bool


@contextlib.contextmanager
def registered(client: Client, model: str, width: int) -> Iterator[Vectors]:
    """Registers both under names of this run's own, for engines of the model; deletes them after.

    What a run that was killed has left is deleted, too, once it has expired.

    Raises:
        HotwireError: The daemon does not take them.
    """
    _sweep(client)
    run = PREFIX + secrets.token_hex(4)
    names = [f"{run}-direction", f"{run}-zero"]
    with contextlib.ExitStack() as stack:
        settled = [
            _put(stack, client, name, model, row)
            for name, row in zip(names, (direction(width), np.zeros(width)), strict=True)
        ]
        yield Vectors(names[0], names[1], f"{run}-nobody", all(settled))


def direction(width: int) -> np.ndarray:
    """Returns a random direction: the same for the same width, of length 1."""
    row = np.random.default_rng(width).standard_normal(width)
    return row / np.linalg.norm(row)


def _put(
    stack: contextlib.ExitStack, client: Client, name: str, model: str, row: np.ndarray
) -> bool:
    # Before the call: one that times out may have registered it all the same.
    stack.callback(_delete, client, name)
    data = save({"row": row.astype(np.float32)}, {"made by": "hotwirectl verify"})
    done: RegisterVectorResponse = client.register_vector(
        data, name=name, model=model, ttl=TTL_SECONDS
    )
    return done.converged


def _delete(client: Client, name: str) -> None:
    # The daemon may be what has gone wrong; the name expires by itself.
    with contextlib.suppress(HotwireError):
        client.delete_vector(name)


def _sweep(client: Client) -> None:
    for vector in client.list_vectors():
        if _is_leftover(vector):
            with contextlib.suppress(NotFoundError):
                client.delete_vector(vector.name, revision=vector.revision)


def _is_leftover(vector: Vector) -> bool:
    return vector.name.startswith(PREFIX) and views.state(vector) == "expired"
