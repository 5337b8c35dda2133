"""What all commands that change something do with the daemon's answer."""

from collections.abc import Sequence

from hotwire_client import (
    DeleteVectorResponse,
    RegisterVectorResponse,
    SetPolicyResponse,
    UpdateVectorResponse,
)
from hotwirectl import failures, views
from hotwirectl.settings import Settings

Response = RegisterVectorResponse | UpdateVectorResponse | DeleteVectorResponse | SetPolicyResponse


def report(
    settings: Settings,
    response: Response,
    what: str,
    *,
    revision: str = "",
    facts: Sequence[str] = (),
    dry_run: bool = False,
    one_of_many: bool = False,
    name: str | None = None,
) -> None:
    """Prints what was done, such as `vector/joy registered (revision ..., generation 7, ...)`.

    facts: more of them, after the revision. one_of_many: whether the command has other results,
    so that as JSON each is on a line of its own. name: what `-o name` prints, by default the first
    word of `what`.

    Raises:
        failures.CommandFailedError: Not every node uses the change yet.
    """
    said = [
        *([f"revision {views.short(revision)}"] if revision else []),
        *facts,
        "dry run" if dry_run else f"generation {response.generation}",
        views.outcome(response.nodes),
    ]
    printer = settings.printer()
    show = printer.sample if one_of_many else printer.result
    names = [name or what.split(maxsplit=1)[0]]
    show(response, lambda: f"{what} ({', '.join(said)})", names=names)
    if not response.converged and not dry_run:
        raise failures.CommandFailedError(
            failures.not_converged(response.generation, response.nodes)
        )
    for sentence in views.left_out(response.nodes):
        printer.note(sentence)
