"""What a command that did not succeed says, and the exit code it ends with."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from hotwire_client import HotwireError, NodeOutcome, NodeState, Violation
from hotwirectl import exit_codes

# The next step, where there is one.
_HINTS = {
    "CALLER_UNKNOWN": "the daemon's configuration names who may call: [callers.NAME]",
    "BLOB_CORRUPT": "register the vector again",
    "CANARY_NOT_FOUND": "`hotwirectl register FILE --canary PERCENT` gives it one",
    "DAEMON_UNREACHABLE": "start it with `hotwired serve`, or name its address with --server",
    "DEADLINE_EXCEEDED": "allow more time with --timeout; what was asked for may have happened",
    "ETAG_MISMATCH": "`hotwirectl policy show` prints the policy in force",
    "EXPIRE_TIME_INVALID": "`hotwirectl vector set NAME --no-ttl` lets it never expire",
    "MUTATION_TIMEOUT": "nothing was changed; allow more time with --timeout",
    "MESSAGE_TOO_LARGE": "limits.max_message_bytes of the daemon's configuration is the limit",
    "NAME_INVALID": "give another name with --name",
    "NODE_REJECTED": "`hotwirectl nodes` shows what each node says",
    "QUOTA_EXCEEDED": "[quotas] of the daemon's configuration says how much",
    "RATE_LIMITED": "[rates] of the daemon's configuration says how often",
    "RECEIPT_NOT_FOUND": "engines keep the last 10,000 of requests that asked for steering",
    "REFERENCE_NORMS_MISMATCH": "`hotwirectl nodes` shows the shape of each model",
    "REVISION_MISMATCH": "`hotwirectl list` shows the revisions",
    "ROLE_TOO_LOW": "docs/security.md says what each role may do",
    "SHUTTING_DOWN": "try again in a moment",
    "SOCKET_NOT_TRUSTED": "set HOTWIRE_RUN_DIR to a directory of your own, for the daemon too",
    "STORE_FULL": "`hotwirectl delete` makes room",
    "TLS_FAILED": "look at --ca, --cert and --key, and at when the certificates end",
    "TOKEN_INVALID": "look at --token-file",
    "UNIMPLEMENTED": "the daemon is older than this command",
    "UPLOADS_BUSY": "try again in a moment",
    "VECTOR_NOT_FOUND": "`hotwirectl list` shows all names",
    "VECTOR_SHAPE_MISMATCH": "`hotwirectl nodes` shows the width and layers of each model",
}


@dataclass(frozen=True)
class Failure:
    """One failure as it is shown.

    Attributes:
        code: The name of the gRPC status, or of the exit code if no call failed.
        reason: Why, in UPPER_SNAKE_CASE.
        message: The same as a sentence.
        exit_code: What the command ends with.
        hint: What to do next; may be empty.
        metadata: Every part of the message that varies.
        violations: The fields at fault.
    """

    code: str
    reason: str
    message: str
    exit_code: int
    hint: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()


class CommandFailedError(Exception):
    """Raised by a command that ends with a failure of its own."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def of_error(error: HotwireError) -> Failure:
    """Returns the failure for a failed call."""
    return Failure(
        code=error.code.name,
        reason=error.reason,
        message=error.message,
        exit_code=exit_codes.of_status(error.code),
        hint=_HINTS.get(error.reason, ""),
        metadata=error.metadata,
        violations=error.violations,
    )


def of_usage(error: click.ClickException) -> Failure:
    """Returns the failure for a wrong command line."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "hotwirectl"
    return Failure(
        code="USAGE",
        reason="USAGE",
        message=_in_our_words(error),
        exit_code=exit_codes.USAGE,
        hint=f"`{path} --help` explains",
    )


def _in_our_words(error: click.ClickException) -> str:
    """Returns click's message; of the names that are like a mistyped one, only the nearest."""
    if near := getattr(error, "possibilities", None):
        return f"{error.message.rstrip('.')}; did you mean {near[0]!r}?"
    return error.format_message().rstrip(".")


def of_unexpected(error: BaseException) -> Failure:
    """Returns the failure for an exception that nothing else accounts for."""
    return Failure(
        code="UNEXPECTED",
        reason=getattr(error, "reason", type(error).__name__),
        message=str(error) or "something unexpected",
        exit_code=exit_codes.UNEXPECTED,
        hint="HOTWIRE_DEBUG=1 shows where",
    )


def interrupted() -> Failure:
    """Returns the failure for Ctrl-C."""
    return Failure("INTERRUPTED", "INTERRUPTED", "interrupted", exit_codes.INTERRUPTED)


def not_converged(generation: int, nodes: Iterable[NodeOutcome]) -> Failure:
    """Returns the failure for a change that is accepted and not yet in use everywhere."""
    late = [node for node in nodes if node.state != NodeState.NODE_STATE_CONVERGED]
    return Failure(
        code="NOT_CONVERGED",
        reason="NOT_CONVERGED",
        message=f"generation {generation} is stored, but not yet in use on every node",
        exit_code=exit_codes.NOT_CONVERGED,
        hint="the daemon goes on trying; `hotwirectl nodes` shows how far it is",
        metadata={node.node: node.detail or NodeState.Name(node.state) for node in late},
    )


def unhealthy(status: str, server: str) -> Failure:
    """Returns the failure for a daemon that answers and is not healthy."""
    return Failure(
        code="UNHEALTHY",
        reason=status,
        message=f"the daemon at {server} says it is not serving",
        exit_code=exit_codes.UNHEALTHY,
        metadata={"server": server},
    )


def extra_missing(what: str, extra: str, error: ImportError) -> CommandFailedError:
    """Returns the error for a part of the command whose libraries are not installed."""
    return CommandFailedError(
        Failure(
            code="USAGE",
            reason="EXTRA_MISSING",
            message=f"{what} needs what is not installed here: {error}",
            exit_code=exit_codes.USAGE,
            hint=f"pip install 'hotwired[{extra}]'",
            metadata={"extra": extra},
        )
    )


def model_unreadable(directory: Path, error: Exception) -> CommandFailedError:
    """Returns the error for a directory that holds no model that can be measured."""
    lines = str(error).splitlines() or [type(error).__name__]
    return CommandFailedError(
        Failure(
            code="USAGE",
            reason="MODEL_UNREADABLE",
            message=f"{directory} holds no model that can be measured: {lines[0]}",
            exit_code=exit_codes.USAGE,
            metadata={"model": str(directory)},
        )
    )


def verify_failed(checks: Sequence[str]) -> Failure:
    """Returns the failure for checks of `verify` that failed."""
    return Failure(
        code="UNHEALTHY",
        reason="VERIFY_FAILED",
        message=f"{len(checks)} of the checks failed: {', '.join(checks)}",
        exit_code=exit_codes.UNHEALTHY,
        hint="the report has what is needed to look into it; it names no host, user or path",
        metadata={"checks": ", ".join(checks)},
    )


def verify_incomplete(checks: Sequence[str]) -> Failure:
    """Returns the failure for a `verify` in which nothing failed and not all could be shown."""
    return Failure(
        code="INCOMPLETE",
        reason="NOT_SHOWN",
        message=f"nothing failed, but this could not be shown: {', '.join(checks)}",
        exit_code=exit_codes.INCOMPLETE,
        metadata={"checks": ", ".join(checks)},
    )


def not_verifiable(why: str) -> Failure:
    """Returns the failure for a server that does not serve, so that no check can be run."""
    return Failure(
        code="UNHEALTHY",
        reason="NOT_SERVING",
        message=why,
        exit_code=exit_codes.UNHEALTHY,
    )
