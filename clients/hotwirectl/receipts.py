"""The command that shows what came of a request, and what it looks like."""

import click

from hotwire_client import GetReceiptsResponse, Receipt, ReceiptOp
from hotwirectl import text, views
from hotwirectl.settings import RESOURCES, Command, Settings, pass_settings

_TITLES = ("VECTOR", "REVISION", "LAYER", "SITE", "OP", "ASKED", "APPLIED")


@click.command(
    "receipt", cls=Command, formats=RESOURCES, example="hotwirectl receipt cmpl-8f2c -o json"
)
@click.argument("request_id")
@pass_settings
def receipt(settings: Settings, request_id: str) -> None:
    """Show what came of a request that asked for steering.

    REQUEST_ID is the id of the response, the X-Request-Id that was sent, or the engine's own id. A
    request with several prompts or choices has a receipt for each.
    """
    with settings.client() as client:
        response = client.get_receipts(request_id)
    names = [f"receipt/{each.request_id}" for each in response.receipts]
    settings.printer().result(response, lambda: view(response), names=names)


def view(response: GetReceiptsResponse) -> str:
    """A block for each receipt: its fields, and a line for each operation."""
    parts = [_receipt(each) for each in response.receipts]
    if response.truncated:
        parts.append("(there are more, for which the answer had no room)")
    return "\n\n".join(parts)


def _receipt(r: Receipt) -> str:
    head = text.fields([*_what(r), *_dose(r), *_course(r)])
    return head + ("\n\n" + text.columns(_TITLES, map(_row, r.ops)) if r.ops else "")


def _what(r: Receipt) -> list[tuple[str, str]]:
    why = [("reason", f"{r.reason}: {r.message}")] if r.reason else []
    return [
        ("request", r.request_id),
        ("outcome", r.outcome),
        *why,
        ("engine", r.engine),
        ("generation", str(r.generation)),
        ("caller", r.caller),
        ("by_default", text.yes(r.by_default)),
    ]


def _dose(r: Receipt) -> list[tuple[str, str]]:
    """The doses, where they were measured."""
    at = f" at layer {r.worst_layer}" if r.HasField("worst_layer") else ""
    found = [
        ("relative_dose", text.number(r.relative_dose) + at, r.HasField("relative_dose")),
        (
            "total_relative_dose",
            text.number(r.total_relative_dose),
            r.HasField("total_relative_dose"),
        ),
        (
            "max_live_relative_dose",
            text.number(r.max_live_relative_dose),
            r.HasField("max_live_relative_dose"),
        ),
    ]
    return [(name, value if is_set else "none") for name, value, is_set in found]


def _course(r: Receipt) -> list[tuple[str, str]]:
    return [
        ("admitted", text.moment(r.admit_time)),
        ("finished", text.yes(r.finished)),
        ("tokens_steered", str(r.tokens_steered) if r.HasField("tokens_steered") else "unknown"),
        ("held_back", text.yes(r.held_back)),
    ]


def _row(op: ReceiptOp) -> list[str]:
    return [
        op.vector,
        views.short(op.revision),
        str(op.layer),
        op.site,
        f"{op.op}:{op.target}" if op.target else op.op,
        text.number(op.scale_asked),
        text.number(op.scale_applied),
    ]
