"""The commands that change a registered vector: vector set, vector promote, vector drop-canary."""

import math

import click

from hotwire_client import CanaryAction, UpdateVectorResponse, VectorUpdate
from hotwirectl import changes, views
from hotwirectl.names import vector_argument
from hotwirectl.settings import RESOURCES, Group, Settings, pass_settings
from hotwirectl.terms import canary_option, ttl_option
from hotwirectl.vectors import whole_revision

_NAME = vector_argument()
_CANARY_REVISION = click.option(
    "--revision", default="", help="Only while the canary is this revision, given whole."
)


@click.group("vector", cls=Group)
def vector() -> None:
    """Change a registered vector's flags and canary."""


@vector.command("set", formats=RESOURCES, example="hotwirectl vector set joy --canary 25")
@_NAME
@click.option(
    "--disabled/--enabled", default=None, help="Whether requests that name it are declined."
)
@ttl_option(help="When it expires, such as 24h or 1d12h from now.")
@click.option("--no-ttl", is_flag=True, help="Let it never expire.")
@canary_option(help="The share of requests that get its canary.")
@click.option(
    "--revision",
    default="",
    help="Only while NAME points to this revision; its first 8 characters do.",
)
@click.option("--dry-run", is_flag=True, help="Check everything; change nothing.")
@pass_settings
def set_vector(
    settings: Settings,
    name: str,
    *,
    disabled: bool | None,
    ttl: float | None,
    canary: float | None,
    revision: str,
    no_ttl: bool,
    dry_run: bool,
) -> None:
    """Change what is named of the vector NAME, and nothing else.

    Requests under way keep what they have.
    """
    if no_ttl and ttl is not None:
        raise click.UsageError("--ttl and --no-ttl contradict each other")
    ttl = math.inf if no_ttl else ttl
    if disabled is None and ttl is None and canary is None:
        raise click.UsageError("there is nothing to set: see the options")
    with settings.client() as client:
        whole = whole_revision(client, name, revision)
        update = VectorUpdate(disabled=disabled, ttl=ttl, canary_percent=canary, revision=whole)
        response = client.update_vector(name, update, validate_only=dry_run)
    _report(settings, response, "valid" if dry_run else "set", dry_run=dry_run)


@vector.command("promote", formats=RESOURCES, example="hotwirectl vector promote joy")
@_NAME
@_CANARY_REVISION
@pass_settings
def promote(settings: Settings, name: str, revision: str) -> None:
    """Point NAME to its canary, for all requests."""
    action = CanaryAction.CANARY_ACTION_PROMOTE
    update = VectorUpdate(canary=action, canary_revision=revision)
    with settings.client() as client:
        response = client.update_vector(name, update)
    _report(settings, response, "promoted")


@vector.command("drop-canary", formats=RESOURCES, example="hotwirectl vector drop-canary joy")
@_NAME
@_CANARY_REVISION
@pass_settings
def drop_canary(settings: Settings, name: str, revision: str) -> None:
    """End the canary of NAME: all requests get what it points to."""
    action = CanaryAction.CANARY_ACTION_DROP
    update = VectorUpdate(canary=action, canary_revision=revision)
    with settings.client() as client:
        response = client.update_vector(name, update)
    _report(settings, response, "canary dropped")


def _report(
    settings: Settings, response: UpdateVectorResponse, verb: str, *, dry_run: bool = False
) -> None:
    found = response.vector
    verb = "unchanged" if response.unchanged and not dry_run else verb
    facts = [views.state(found), *views.expiry_facts(found), *views.canary_facts(found)]
    what = f"vector/{found.name} {verb}"
    changes.report(settings, response, what, revision=found.revision, facts=facts, dry_run=dry_run)
