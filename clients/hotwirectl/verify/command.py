"""The command: finds the server or starts one, runs the checks, says how they ended."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from hotwirectl import failures
from hotwirectl.printers import stdio
from hotwirectl.settings import Command, Settings, pass_settings

if TYPE_CHECKING:
    from hotwirectl.verify.report import Report

_OUT = click.Path(dir_okay=False, path_type=Path)


@click.command("verify", cls=Command, example="hotwirectl verify --html report.html")
@click.option(
    "--model",
    metavar="NAME|DIR",
    help="The model, if several are served; the directory of one to serve, if none is.",
)
@click.option(
    "--url",
    envvar="HOTWIRE_VLLM_URL",
    show_envvar=True,
    help="The running vLLM: http://HOST:PORT or unix:PATH.  [default: http://127.0.0.1:8000]",
)
@click.option("--html", "page", type=_OUT, metavar="FILE", help="Write a page with plots there.")
@click.option("--quick", is_flag=True, help="Fewer requests, and no bare servers to compare with.")
@click.option("--throwaway", is_flag=True, help="Start a server though there are running ones.")
@click.argument("vllm_options", nargs=-1, type=click.UNPROCESSED)
@pass_settings
def verify(settings: Settings, /, page: Path | None, **how: Any) -> None:
    """Check that steering works, on the server that runs.

    Registers two vectors of its own, asks for a few dozen short completions, removes the vectors
    and prints a block for a bug report. No policy is changed. If the daemon knows no vLLM, it
    starts one and a daemon for the model in a directory; VLLM_OPTIONS, after --, go to it. The key
    of a server that wants one is taken from VLLM_API_KEY.

    Ends with 0 if everything was shown, with 4 if a check failed, and with 5 if none failed but
    something could not be shown.
    """
    from hotwirectl.verify.report import Report  # numpy, which no other command waits for

    start = time.monotonic()
    with _stopped_by_sigterm():
        report: Report = _report(settings, start, **how)
    if page is not None:
        from hotwirectl.verify.page import write

        write(report, page)
    settings.printer().result(report.form(), report.block)
    if failure := _failure(report):
        raise failures.CommandFailedError(failure)


def _report(settings: Settings, start: float, **how: Any) -> "Report":
    from hotwirectl.verify import machine, report

    against, stage, checks, timings = _run(settings, _progress(settings), **how)
    seconds = time.monotonic() - start
    return report.Report(against, checks, timings, stage, machine.facts(), seconds)


def _run(
    settings: Settings,
    say: Callable[[str], None],
    *,
    model: str | None,
    url: str | None,
    quick: bool,
    throwaway: bool,
    vllm_options: tuple[str, ...],
) -> tuple[Any, ...]:
    from hotwirectl.verify import api, cost, run, target
    from hotwirectl.verify.results import FailedError

    try:
        with settings.client() as client:
            nodes = () if throwaway else target.known_nodes(client)
            if nodes:
                if vllm_options:
                    raise click.UsageError("options of vLLM are for a --throwaway server")
                found = target.running(_api(url), nodes, model)
                stage, checks, timings = run.verify(client, found, say, quick=quick)
                return "a running server", stage, checks, [*timings, cost.NO_BARE]
        return _thrown_away(say, model, vllm_options, quick=quick)
    except (api.ApiError, FailedError) as error:
        raise failures.CommandFailedError(failures.not_verifiable(str(error))) from error


def _thrown_away(
    say: Callable[[str], None], model: str | None, options: tuple[str, ...], *, quick: bool
) -> tuple[Any, ...]:
    from hotwirectl.verify import cost, run
    from hotwirectl.verify.throwaway import throwaway

    if model is None:
        raise click.UsageError(
            "no daemon is there that knows a running vLLM; name a model's directory with --model, "
            "and one is started for it"
        )
    if not Path(model).is_dir():
        raise click.UsageError(f"{model} is no directory with a model, and no server runs")
    with throwaway(Path(model), options, say) as own:
        bare = [cost.NO_BARE] if quick else [own.bare("before")]
        with own.armed() as (client, target):
            stage, checks, timings = run.verify(client, target, say, quick=quick)
        bare += [] if quick else [own.bare("after")]
    return "a throwaway server", stage, checks, [*timings, *bare]


def _api(url: str | None) -> Any:
    from hotwirectl.verify.api import Api
    from hotwirectl.verify.target import DEFAULT_URL

    try:
        return Api(url or DEFAULT_URL, os.environ.get("VLLM_API_KEY", ""))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _progress(settings: Settings) -> Callable[[str], None]:
    """Returns what tells people on stderr how far it is; programs get nothing but the result."""
    if settings.output == "json":
        return lambda _line: None
    return stdio.err


def _failure(report: "Report") -> failures.Failure | None:
    from hotwirectl.verify.results import Status

    for status, make in (
        (Status.FAILED, failures.verify_failed),
        (Status.NOT_SHOWN, failures.verify_incomplete),
    ):
        if names := [check.name for check in report.checks if check.status is status]:
            return make(names)
    return None


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Within it, SIGTERM is as good as Ctrl-C: what was registered or started is removed."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread, which has no signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
