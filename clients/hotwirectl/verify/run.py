"""All checks, one after the other: none of them ends another."""

from collections.abc import Callable, Sequence

from hotwire_client import Client, HotwireError
from hotwirectl.verify import cost, node_checks, rounding, steering_checks, tap_checks, vectors
from hotwirectl.verify.api import ApiError, RefusedError
from hotwirectl.verify.identity import nodes_of
from hotwirectl.verify.node_checks import Seen
from hotwirectl.verify.results import (
    CIRCUMSTANCES,
    Check,
    FailedError,
    NotShownError,
    Status,
    Timing,
)
from hotwirectl.verify.stage import Stage
from hotwirectl.verify.target import Target

Say = Callable[[str], None]

CHECKS: Sequence[tuple[str, Callable[[Stage], Seen]]] = (
    ("unsteered requests are served", rounding.measure),
    ("the nodes are converged and armed", node_checks.nodes),
    ("steering fires", steering_checks.fires),
    ("a zero vector changes nothing", steering_checks.zero_vector),
    ("batchmates are untouched", steering_checks.batchmates),
    ("the prefix cache keeps steered apart", steering_checks.prefix_cache),
    ("every rank's tap works", tap_checks.taps),
    ("an unknown vector is refused if strict", steering_checks.refusal),
    ("repeat runs are the same", steering_checks.repeats),
)


def verify(
    client: Client, target: Target, say: Say, *, quick: bool
) -> tuple[Stage, list[Check], list[Timing]]:
    """Registers verify's vectors, runs every check, and removes the vectors again.

    Raises:
        HotwireError: The daemon does not take the vectors, or does not answer.
        click.UsageError: The server is none of the daemon's.
        ApiError: The server does not answer, or not as vLLM does.
    """
    policy = client.get_policy().policy
    say(f"registering two vectors named {vectors.PREFIX}..., which expire by themselves")
    with vectors.registered(client, target.model, target.width) as registered:
        stage = Stage(target.api, client, target.model, target.nodes, registered, policy)
        stage.max_model_len, stage.quick = target.max_model_len, quick
        stage.nodes = nodes_of(stage)
        checks = [_said(say, check(name, function, stage)) for name, function in CHECKS]
        say("timing")
        return stage, checks, _timings(stage)


def check(name: str, function: Callable[[Stage], Seen], stage: Stage) -> Check:
    """Returns what a check comes to; a call that fails is a check that fails."""
    try:
        seen, figures = function(stage)
    except NotShownError as error:
        return Check(name, Status.NOT_SHOWN, str(error))
    except RefusedError as error:
        return _refused(name, error)
    except FailedError as error:
        return Check(name, Status.FAILED, str(error), error.figures)
    except (ApiError, HotwireError) as error:
        return Check(name, Status.FAILED, str(error))
    return Check(name, Status.PASSED, seen, figures)


def _refused(name: str, error: RefusedError) -> Check:
    if error.reason in CIRCUMSTANCES:
        return Check(name, Status.NOT_SHOWN, CIRCUMSTANCES[error.reason])
    return Check(name, Status.FAILED, f"refused with {error.reason}: {error}")


def _said(say: Say, found: Check) -> Check:
    say(f"{found.status}: {found.name}")
    return found


def _timings(stage: Stage) -> list[Timing]:
    try:
        return cost.timings(stage)
    except ApiError as error:
        return [Timing(cost.UNSTEERED, why_not=str(error))]
