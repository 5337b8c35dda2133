"""What is under docs/deploy, and what docs/deploying.md says, holds for the code that there is."""

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from hotwirectl.main import cli as hotwirectl
from hotwired.main import main as hotwired

DOCS = Path(__file__).parents[2] / "docs"
MANIFESTS = sorted((DOCS / "deploy" / "kubernetes").glob("*.yaml"))
DOCKERFILE = (DOCS / "deploy" / "Dockerfile").read_text()
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
PROGRAMS: dict[str, click.Command] = {"hotwired": hotwired, "hotwirectl": hotwirectl}


def documents() -> list[dict[str, Any]]:
    """Returns all objects of all manifests."""
    return [found for path in MANIFESTS for found in yaml.safe_load_all(path.read_text())]


def pod_specs() -> Iterator[dict[str, Any]]:
    """Yields the pods' specifications."""
    for found in documents():
        if found["kind"] == "Pod":
            yield found["spec"]
        elif found["kind"] == "StatefulSet":
            yield found["spec"]["template"]["spec"]


def containers() -> dict[str, dict[str, Any]]:
    """Returns the containers of the pod with both, by name."""
    spec = next(spec for spec in pod_specs() if "initContainers" in spec)
    return {found["name"]: found for found in (*spec["initContainers"], *spec["containers"])}


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Returns the variables that a manifest sets."""
    return {entry["name"]: entry["value"] for entry in container["env"]}


def commands() -> list[list[str]]:
    """Returns every command line of ours in manifests, image, unit and their document."""
    found = [*of_manifests(), *of_image(), *of_unit(), *of_document()]
    return [words for words in found if Path(words[0]).name in PROGRAMS]


def of_manifests() -> Iterator[list[str]]:
    """Yields what containers of our image run, and all probes."""
    for spec in pod_specs():
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            if container["image"].startswith("hotwired:"):
                yield container.get("command") or ["hotwired", *container["args"]]
            for kind in PROBES:
                if "exec" in container.get(kind, {}):
                    yield container[kind]["exec"]["command"]


def of_image() -> Iterator[list[str]]:
    """Yields what the image runs, and its health check."""
    lines = dict(re.findall(r"^ *(CMD|ENTRYPOINT) (\[.+\])$", DOCKERFILE, re.MULTILINE))
    checks = re.findall(r"^    CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    yield [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]
    yield from map(json.loads, checks)


def of_unit() -> Iterator[list[str]]:
    """Yields what the service runs."""
    unit = (DOCS / "deploy" / "systemd" / "hotwired.service").read_text()
    yield from map(str.split, re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE))


def of_document() -> Iterator[list[str]]:
    """Yields what docs/deploying.md tells one to type, behind `sudo` or `kubectl exec` too."""
    for line in re.findall(r"^    (.+)$", (DOCS / "deploying.md").read_text(), re.MULTILINE):
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            follows = "" if at == 0 else words[at - 1]
            if Path(word).name in PROGRAMS and (at == 0 or follows == "--" or "=" in follows):
                yield list(itertools.takewhile(lambda w: w not in {"<", ">", "&&"}, words[at:]))


@pytest.fixture
def inert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands parse their options and then do nothing."""

    def disarm(command: click.Command) -> None:
        if isinstance(command, click.Group):
            for part in command.commands.values():
                disarm(part)
        else:
            monkeypatch.setattr(command, "callback", lambda *_, **__: None)

    for program in PROGRAMS.values():
        disarm(program)


def here(word: str) -> str:
    """Makes the file that a word names, in the directory we are in."""
    if word.endswith((".tar", ".safetensors")):
        word = Path(word).name
        Path(word).touch()
    return word


@pytest.mark.usefixtures("inert")
def test_every_command_line_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is parsed by the command itself; files that it names are taken to be there."""
    monkeypatch.chdir(tmp_path)
    seen = []
    for words in commands():
        program = Path(words[0]).name
        PROGRAMS[program].main(list(map(here, words[1:])), prog_name=program, standalone_mode=False)
        seen.append(words[1])
    assert {"serve", "health", "wait", "backup", "restore"} <= set(seen)


@pytest.mark.parametrize("version", ["1.29", "1.33", kubernetes_validate.latest_version()])
def test_manifests_are_valid(version: str) -> None:
    """By Kubernetes' own schemas, with no field that they don't know."""
    assert MANIFESTS
    for found in documents():
        kubernetes_validate.validate(found, version, strict=True)


def test_both_containers_find_the_sockets() -> None:
    """In a folder of their own: the volume's is not private to their user."""
    both = containers()
    assert both["hotwired"]["restartPolicy"] == "Always"
    folders = {name: Path(environment(found)["HOTWIRE_RUN_DIR"]) for name, found in both.items()}
    assert folders["hotwired"] == folders["vllm"]
    for found in both.values():
        mounts = {mount["name"]: mount["mountPath"] for mount in found["volumeMounts"]}
        assert Path(mounts["sockets"]) == folders["vllm"].parent
    state = Path(environment(both["hotwired"])["HOTWIRED_STATE_DIR"])
    mounts = {mount["name"]: mount["mountPath"] for mount in both["hotwired"]["volumeMounts"]}
    assert Path(mounts["state"]) == state.parent


def test_pods_and_image_have_one_user() -> None:
    """What one creates the other may open, and each start finds the state private."""
    (user,) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    for spec in pod_specs():
        context = spec["securityContext"]
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == user
        assert context["fsGroupChangePolicy"] == "OnRootMismatch"
    for name, value in re.findall(r"(HOTWIRED?_\w+)=(\S+)", DOCKERFILE):
        assert environment(containers()["hotwired"])[name] == value


def test_vllm_is_not_waited_for_before_it_is_started() -> None:
    """A sidecar's startup probe holds up the containers behind it."""
    hotwired_probes = containers()["hotwired"]
    assert "wait" in hotwired_probes["readinessProbe"]["exec"]["command"]
    for kind in ("startupProbe", "livenessProbe"):
        assert "wait" not in hotwired_probes[kind]["exec"]["command"]


def test_a_probe_has_time_to_end_by_itself() -> None:
    """The command's own deadline, and 2 s to connect and start, come before the kubelet's."""
    for kind in PROBES:
        probe = containers()["hotwired"][kind]
        command = probe["exec"]["command"]
        assert float(command[command.index("--timeout") + 1]) + 2 <= probe["timeoutSeconds"]
