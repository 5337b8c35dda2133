"""The commands for the policy: policy show, policy set, off, on."""

from pathlib import Path
from typing import Any

import click

from hotwire_client import Client, GetPolicyResponse
from hotwirectl import changes, policy_input, views, watching
from hotwirectl.near import Choice
from hotwirectl.settings import RESOURCES, Command, Group, Settings, checked, pass_settings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("policy", cls=Group)
def policy() -> None:
    """Show or set what requests may do."""


@policy.command("show", formats=RESOURCES, example="hotwirectl policy show -o json > policy.json")
@watching.options()
@pass_settings
def show(settings: Settings, *, interval: float | None, watch: bool) -> None:
    """Show the policy in force."""
    every = watching.seconds(interval, watch=watch)
    with settings.client() as client:
        if every:
            blocks = watching.Blocks(views.policy)
            watching.follow(settings, lambda: _now(client), blocks, every, mark=_mark)
            return
        response = client.get_policy()
    settings.printer().result(response, lambda: views.policy(response), names=["policy"])


@policy.command(
    "set",
    formats=RESOURCES,
    example="hotwirectl policy set --max-relative-dose 0.3 --mode reject --dry-run",
)
@click.option(
    "--max-relative-dose",
    metavar="LIMIT",
    callback=checked(policy_input.parse_limit),
    help="The limit at each layer, or `none`.",
)
@click.option(
    "--max-total-relative-dose",
    metavar="LIMIT",
    callback=checked(policy_input.parse_limit),
    help="The limit of the sum over layers, or `none`.",
)
@click.option(
    "--max-live-relative-dose",
    metavar="LIMIT",
    callback=checked(policy_input.parse_limit),
    help="The limit at each token, against its own residual stream, or `none`.",
)
@click.option(
    "--apply-to-running/--no-apply-to-running",
    default=None,
    help="Whether the live limit holds requests that are running, too.",
)
@click.option(
    "--vector-limit",
    "max_relative_dose_by_vector",
    metavar="NAME=LIMIT",
    multiple=True,
    callback=checked(policy_input.parse_limits),
    help="The limit at each layer for one vector; those given replace all there are. Or `none`.",
)
@click.option(
    "--caller-limit",
    "max_relative_dose_by_caller",
    metavar="LABEL=LIMIT",
    multiple=True,
    callback=checked(policy_input.parse_limits),
    help="The limit at each layer for one caller's label; those given replace all. Or `none`.",
)
@click.option(
    "--default-spec",
    metavar="JSON",
    help="What requests get that come without a specification, or `none`.",
)
@click.option(
    "--default-mode",
    type=Choice(["fallback", "add"]),
    help="Whether the default also goes before what requests ask for themselves.",
)
@click.option(
    "--mode",
    type=Choice(["reject", "clamp", "warn", "shadow"]),
    help="What happens to a request over a limit; shadow only measures, and steers nothing.",
)
@click.option(
    "--allow-unmonitored/--no-allow-unmonitored",
    default=None,
    help="Whether a layer without a reference norm may be steered while a limit is set.",
)
@click.option(
    "--strict/--no-strict",
    default=None,
    help="Whether requests that cannot be steered as asked are refused.",
)
@click.option(
    "--reference-norms",
    type=_FILE,
    help="What `norms measure` writes; or JSON with the norm of the residual stream by layer: "
    '{"0": 12.5, ...}, or a list.',
)
@click.option(
    "--file",
    type=_FILE,
    help="JSON with fields of the policy, as `policy show -o json` prints it; null clears a limit.",
)
@click.option("--dry-run", is_flag=True, help="Check everything; change nothing.")
@pass_settings
def set_policy(settings: Settings, /, file: Path | None, *, dry_run: bool, **flags: Any) -> None:
    """Change the fields that are named, and no others.

    An etag in the file makes the daemon refuse the change if the policy is another by now.
    """
    wanted, fields = policy_input.build(_given(**flags), file)
    with settings.client() as client:
        response = client.set_policy(wanted, fields=fields, validate_only=dry_run)
    changes.report(settings, response, f"policy {'valid' if dry_run else 'set'}", dry_run=dry_run)


@click.command("off", cls=Command, formats=RESOURCES, example="hotwirectl off")
@pass_settings
def off(settings: Settings) -> None:
    """Stop all steering at once.

    This is the kill switch: requests under way stop being steered at their engine's next step.
    """
    _switch(settings, engaged=True)


@click.command("on", cls=Command, formats=RESOURCES, example="hotwirectl on")
@pass_settings
def on(settings: Settings) -> None:
    """Allow steering again after `off`."""
    _switch(settings, engaged=False)


def _switch(settings: Settings, *, engaged: bool) -> None:
    with settings.client() as client:
        response = client.set_kill_switch(engaged)
    changes.report(settings, response, f"steering {'off' if engaged else 'on'}", name="policy")


def _now(client: Client) -> dict[str, GetPolicyResponse]:
    return {"policy": client.get_policy()}


def _mark(response: GetPolicyResponse) -> object:
    # The generation grows with every change, that of a vector too.
    return watching.whole(response.policy)


def _given(
    mode: str | None, default_mode: str | None, reference_norms: Path | None, **plain: Any
) -> dict[str, Any]:
    """Returns the values of the flags that were given, by field of the policy."""
    values = {
        **plain,
        "default_mode": f"DEFAULT_MODE_{default_mode.upper()}" if default_mode else None,
        "dose_mode": f"DOSE_MODE_{mode.upper()}" if mode else None,
        **(policy_input.read_reference(reference_norms) if reference_norms else {}),
    }
    return {name: value for name, value in values.items() if value is not None}
