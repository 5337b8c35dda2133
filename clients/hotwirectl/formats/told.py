"""What is known of a vector from elsewhere than its file."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Depth:
    """How many blocks a model has, and who says so."""

    layers: int
    source: str


@dataclass(slots=True)
class Told:
    """What the user says of a vector, and whom to ask for the model's depth.

    base: one of BASES, or None. num_layers: None if not said. ask: returns the depth of the model
    that is served, or None; called at most once, and only where it decides something.
    """

    base: str | None = None
    num_layers: int | None = None
    ask: Callable[[], Depth | None] = lambda: None
    _asked: tuple[Depth | None] | None = None

    @property
    def depth(self) -> Depth | None:
        """The model's depth, if anybody knows it."""
        if self.num_layers is not None:
            return Depth(self.num_layers, "as --num-layers says")
        if self._asked is None:
            self._asked = (self.ask(),)
        return self._asked[0]
