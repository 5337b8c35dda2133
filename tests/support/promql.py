"""What a PromQL expression asks for, by a real parser of the language."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser


class Selected(NamedTuple):
    """A series that an expression selects, and the labels that it matches on."""

    metric: str
    labels: frozenset[str]


def selected(expression: str) -> list[Selected]:
    """Returns each selector of an expression. Raises ValueError if it can't be parsed."""
    found = [node for node in nodes(expression) if isinstance(node, promql_parser.VectorSelector)]
    return [Selected(str(n.name), frozenset(m.name for m in n.matchers.matchers)) for n in found]


def grouped(expression: str) -> set[str]:
    """Returns the labels that an expression aggregates by."""
    found = [node for node in nodes(expression) if isinstance(node, promql_parser.AggregateExpr)]
    return {label for node in found if node.modifier for label in node.modifier.labels}


def nodes(expression: str) -> Iterator[Any]:
    """Yields the nodes of an expression's tree."""
    yield from _below(promql_parser.parse(expression))


def _below(node: Any) -> Iterator[Any]:
    yield node
    children = [getattr(node, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")]
    for child in [*children, *(getattr(node, "args", None) or ())]:
        if isinstance(child, promql_parser.Expr):
            yield from _below(child)
