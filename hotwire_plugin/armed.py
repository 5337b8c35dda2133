"""From what each worker armed to what admission may count on. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from hotwire_plugin.shape import DEFAULT_SITE, SITES, ModelShape, Place


class Armed(NamedTuple):
    """What a worker says of itself once its model is loaded.

    Attributes:
        disarmed_reason: why it cannot steer; empty if it can.
        pp_rank: its pipeline stage.
        places: where the op is launched on it.
        slots: the directions that its bank holds at once.
    """

    disarmed_reason: str
    pp_rank: int
    places: tuple[Place, ...]
    slots: int


def first_reason(workers: Iterable[Armed]) -> str:
    """Return why the first worker that cannot steer cannot; empty if all can."""
    return next((worker.disarmed_reason for worker in workers if worker.disarmed_reason), "")


def shape_of(num_layers: int, workers: Iterable[Armed]) -> ModelShape:
    """Return the shape that all workers together have.

    A place counts if every tensor-parallel rank of its stage has it: on fewer, the replicas of
    the residual stream would part.
    """
    stages: dict[int, set[Place]] = {}
    slots = None
    for worker in workers:
        slots = worker.slots if slots is None else min(slots, worker.slots)
        own = set(worker.places)
        stages[worker.pp_rank] = stages.get(worker.pp_rank, own) & own
    return replace(_shape(num_layers, set().union(*stages.values())), slots=slots)


def assumed_shape(num_layers: int, streams: int, sites: Sequence[str]) -> ModelShape:
    """Return what a process takes the model for that hears of no worker: every site everywhere."""
    every = frozenset(range(num_layers))
    return ModelShape(num_layers, streams, dict.fromkeys(sites, every))


def sites_of(shape: ModelShape) -> tuple[str, ...]:
    """Return the sites that are armed at some layer, in the order of SITES."""
    return tuple(site for site in SITES if site == DEFAULT_SITE or shape.layers_at.get(site))


def _shape(num_layers: int, places: set[Place]) -> ModelShape:
    layers_at: dict[str, set[int]] = defaultdict(set)
    for place in places:
        layers_at[place.site].add(place.layer)
    streams = 1 + max((place.stream for place in places), default=0)
    frozen = {site: frozenset(layers) for site, layers in layers_at.items()}
    return ModelShape(num_layers, streams, frozen)
