"""How vectors and nodes are listed: a row for each, under titles, with more of them if wide."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from hotwire_client import Node, NodeRole, NodeState, Vector
from hotwirectl import text, views

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Listing(Generic[M]):
    """A kind of resource in rows.

    Attributes:
        kind: What one is called in front of its name.
        titles: Of the columns, NAME first and AGE last.
        more: Titles of the columns that only the wide form has, which stand before the last.
        row: Returns the values below `titles`.
        more_row: Returns the values below `more`.
        none: What is said if there are none.
    """

    kind: str
    titles: Sequence[str]
    more: Sequence[str]
    row: Callable[[M], Sequence[str]]
    more_row: Callable[[M], Sequence[str]]
    none: str

    def all_titles(self, *, wide: bool) -> list[str]:
        """Returns the titles of the form."""
        return [*self.titles[:-1], *(self.more if wide else ()), self.titles[-1]]

    def cells(self, item: M, *, wide: bool) -> list[str]:
        """Returns the values of one row of the form."""
        row = self.row(item)
        return [*row[:-1], *(self.more_row(item) if wide else ()), row[-1]]

    def table(self, items: Sequence[M], *, wide: bool) -> str:
        """Returns all rows under their titles."""
        if not items:
            return self.none
        rows = (self.cells(item, wide=wide) for item in items)
        return text.columns(self.all_titles(wide=wide), rows)


def nodes(items: Sequence[Node], *, wide: bool = False) -> str:
    """One line for each node, then what nodes say about their state."""
    return "\n".join([NODES.table(items, wide=wide), *_said(items)])


def _said(items: Iterable[Node]) -> list[str]:
    said = [text.escaped(f"{n.name}: {n.detail}") for n in items if n.detail]
    return ["", *said] if said else []


def _vector(v: Vector) -> list[str]:
    return [
        v.name,
        views.short(v.revision),
        views.layers(v),
        str(v.hidden_size),
        v.source_dtype,
        text.size(v.size_bytes),
        v.model,
        views.state(v),
        text.remaining(v.expire_time) if v.HasField("expire_time") else "-",
        f"{views.short(v.canary.revision)} {views.percent(v)}" if v.HasField("canary") else "-",
        text.age(v.create_time),
    ]


def _vector_more(v: Vector) -> list[str]:
    norms = f"{text.number(min(v.norms))}-{text.number(max(v.norms))}" if v.norms else "-"
    return [v.revision, norms, str(v.generation), text.age(v.update_time)]


def _node(n: Node) -> list[str]:
    return [
        n.name,
        ",".join(views.enum_word(NodeRole.Name(r), "NODE_ROLE_") for r in n.roles),
        views.enum_word(NodeState.Name(n.state), "NODE_STATE_"),
        str(n.generation) if n.generation else "-",
        str(n.revisions_held),
        f"{n.num_layers}x{n.hidden_size}",
        n.model,
        n.vllm_version,
        text.age(n.last_seen_time),
    ]


def _node_more(n: Node) -> list[str]:
    return [
        n.plugin_version,
        n.dtype,
        ",".join(n.sites),
        f"{n.dp_rank}/{n.pp_rank}/{n.tp_rank}",
        str(n.pid),
    ]


VECTORS = Listing(
    kind="vector",
    titles=(
        *("NAME", "REVISION", "LAYERS", "WIDTH", "DTYPE", "SIZE", "MODEL"),
        *("STATE", "EXPIRES", "CANARY", "AGE"),
    ),
    more=("SHA256", "NORMS", "GENERATION", "UPDATED"),
    row=_vector,
    more_row=_vector_more,
    none="no vectors are registered",
)

NODES = Listing(
    kind="node",
    titles=("NAME", "ROLES", "STATE", "GENERATION", "HELD", "SHAPE", "MODEL", "VLLM", "AGE"),
    more=("PLUGIN", "DTYPE", "SITES", "DP/PP/TP", "PID"),
    row=_node,
    more_row=_node_more,
    none="no nodes are connected",
)
