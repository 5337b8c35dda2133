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
    name: str | None = None,
) -> None:
    """Prints what was done, such as `vector/joy registered (revision ..., generation 7, ...)`.

    facts: more of them, after the revision.
    name: what `-o name` prints, by default the first word of `what`.

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
    printer.result(
        response, lambda: f"{what} ({', '.join(said)})", names=[name or what.split(maxsplit=1)[0]]
    )
    if not response.converged and not dry_run:
        raise failures.CommandFailedError(
            failures.not_converged(response.generation, response.nodes)
        )
    for sentence in views.left_out(response.nodes):
        printer.note(sentence)
