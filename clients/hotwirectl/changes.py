"""What all commands that change something do with the daemon's answer."""

from hotwire_client import DeleteVectorResponse, RegisterVectorResponse, SetPolicyResponse
from hotwirectl import failures, views
from hotwirectl.settings import Settings

Response = RegisterVectorResponse | DeleteVectorResponse | SetPolicyResponse


def report(
    settings: Settings, response: Response, what: str, *, revision: str = "", dry_run: bool = False
) -> None:
    """Prints what was done, such as `vector/joy registered (revision ..., generation 7, ...)`.

    Raises:
        failures.CommandFailedError: Not every node uses the change yet.
    """
    facts = [
        *([f"revision {views.short(revision)}"] if revision else []),
        "dry run" if dry_run else f"generation {response.generation}",
        views.outcome(response.nodes),
    ]
    printer = settings.printer()
    printer.result(response, lambda: f"{what} ({', '.join(facts)})")
    if not response.converged and not dry_run:
        raise failures.CommandFailedError(
            failures.not_converged(response.generation, response.nodes)
        )
    for sentence in views.left_out(response.nodes):
        printer.note(sentence)
