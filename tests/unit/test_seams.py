"""A seam replaces one method once, and a name that has moved disarms instead of breaking vLLM."""

import os
import subprocess
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from hotwire_plugin.engine_seam import beams, core, scheduler, sessions, worker
from hotwire_plugin.engine_seam.identity import refused_feature
from hotwire_plugin.engine_seam.patch import SeamMoved, replace
from hotwire_plugin.engine_seam.step_message import PROMPT_LEN_KEY
from hotwire_plugin.layers import NotSteerable
from hotwire_plugin.process import process
from hotwire_plugin.program import PROGRAM_KEY, SPEC_KEY
from hotwire_plugin.settings import settings_from


class Engine:
    def step(self, n: int) -> int:
        """Return n."""
        return n


def doubled(inner: Callable[..., int]) -> Callable[..., int]:
    """Make a method that returns twice what the inner one does."""

    def step(self: Engine, n: int) -> int:
        return 2 * inner(self, n)

    return step


def test_replacing_twice_wraps_once() -> None:
    """Loading the plugin again in a process leaves one wrapper, with the inner one's name."""
    owner = type("Engine2", (Engine,), {})
    replace(owner, "step", doubled)
    replace(owner, "step", doubled)
    assert owner().step(3) == 6
    assert owner.step.__doc__ == "Return n."


def test_a_moved_name_says_which() -> None:
    """The error names the owner and the name that this vLLM lacks."""
    with pytest.raises(SeamMoved, match=r"Engine\.stride is not in this vLLM"):
        replace(Engine, "stride", doubled)


def test_a_moved_name_disarms_the_process_and_nothing_is_raised() -> None:
    """Importing a module whose seam has moved works; the process is disarmed with the reason."""
    script = (
        "import sys, types\n"
        "from hotwire_plugin.engine_seam import core\n"
        "from hotwire_plugin.engine_seam.patch import when_imported\n"
        "from hotwire_plugin.process import process\n"
        "sys.modules['moved'] = types.SimpleNamespace(EngineCore=type('EngineCore', (), {}))\n"
        "when_imported('moved', core.install)\n"
        "print(process.disarmed_reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == ("moved: EngineCore._initialize_kv_caches is not in this vLLM\n")
    assert "disarmed" in done.stderr


def test_a_request_that_vllm_refuses_after_admission_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not live, so that the vector it named can be discarded."""
    finished: list[str] = []
    engine = types.SimpleNamespace(admit=lambda extra, *_: extra, finish=finished.append)
    monkeypatch.setattr(process, "engine", engine)

    def refusing(_self: object, _request: object) -> None:
        raise ValueError("no such grammar")

    request = types.SimpleNamespace(
        sampling_params=types.SimpleNamespace(extra_args=None),
        prompt_token_ids=[1],
        request_id="r",
        resumable=False,
    )
    with pytest.raises(ValueError, match="grammar"):
        core._admitted(refusing)(object(), request)
    assert finished == ["r"]


def test_what_moves_tokens_out_of_sight_is_refused() -> None:
    """Context parallelism, microbatching and the like are found in the configuration."""

    def config(**parallel: int) -> types.SimpleNamespace:
        passes = types.SimpleNamespace(pass_config=types.SimpleNamespace(enable_sp=None))
        return types.SimpleNamespace(
            compilation_config=passes, parallel_config=types.SimpleNamespace(**parallel)
        )

    assert refused_feature(config(decode_context_parallel_size=1, enable_dbo=False)) is None
    assert refused_feature(config(decode_context_parallel_size=2)) == "decode context parallelism"
    assert refused_feature(config(enable_dbo=True)) == "microbatching"


def test_settings_are_whole_mebibytes() -> None:
    """The bank's size is read in MiB; anything else is refused with the variable's name."""
    assert settings_from({"HOTWIRE_BANK_MIB": "3"}).bank_bytes == 3 << 20
    for text in ("0", "-1", "2.5", "big", ""):
        with pytest.raises(ValueError, match="HOTWIRE_BANK_MIB"):
            settings_from({"HOTWIRE_BANK_MIB": text})


def test_sites_are_known_and_post_is_always_among_them() -> None:
    """In the order of the block, whatever the order they are named in."""
    assert settings_from({}).sites == ("post",)
    assert settings_from({"HOTWIRE_SITES": " mlp_out, pre"}).sites == ("pre", "mlp_out", "post")
    with pytest.raises(ValueError, match=r"HOTWIRE_SITES knows pre, .*'mid'"):
        settings_from({"HOTWIRE_SITES": "pre,mid"})


def test_an_encoder_decoder_model_is_refused_before_it_is_touched() -> None:
    """With one clear sentence, which the node reports."""
    model = types.SimpleNamespace(is_encoder_decoder=True)
    loaded = types.SimpleNamespace(vllm_config=types.SimpleNamespace(model_config=model))
    with pytest.raises(NotSteerable, match="encoder-decoder"):
        worker._arm(loaded)


def test_how_far_a_request_got_when_it_ended() -> None:
    """All but the token sampled last, whatever the scheduler's own count is; else its count."""
    for output, tokens, computed, want in (
        (5, 45, 44, 44),
        (5, 45, 46, 44),  # a step was under way when it stopped
        (5, 45, 0, 44),  # it was aborted while it was preempted
        (0, 40, 16, 16),  # within its prompt
        (0, 40, 0, 0),
    ):
        request = types.SimpleNamespace(
            num_output_tokens=output, num_tokens=tokens, num_computed_tokens=computed
        )
        assert scheduler._computed(request) == want


@pytest.mark.parametrize(("extra_args", "drawn_by"), [(None, None), ({PROMPT_LEN_KEY: 1}, "")])
def test_the_steps_of_a_beam_search_draw_no_canary(
    extra_args: dict[str, Any] | None, drawn_by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids differ, so that one search would mix two revisions; others draw by their own."""
    seen: list[str | None] = []

    def admit(extra: Any, _id: str, _prompt: object, by: str | None) -> Any:
        seen.append(by)
        return extra

    monkeypatch.setattr(process, "engine", types.SimpleNamespace(admit=admit))
    params = types.SimpleNamespace(extra_args=extra_args)
    request = types.SimpleNamespace(
        sampling_params=params, prompt_token_ids=[1, 2], request_id="r", resumable=False
    )
    core._admitted(lambda _self, _request: None)(object(), request)
    assert seen == [drawn_by]


def test_the_chunks_of_a_session_draw_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is admitted under a name of its own, and all get one revision."""
    monkeypatch.setattr(sessions, "_chunks", {"r": deque(["r"])})
    seen: list[tuple[str, str]] = []

    def admit(_extra: Any, name: str, _prompt: object, drawn_by: str) -> Any:
        seen.append((name, drawn_by))
        return types.SimpleNamespace(extra_args=None)

    engine = types.SimpleNamespace(admission=types.SimpleNamespace(admit=admit))
    params = types.SimpleNamespace(extra_args=None)
    request = types.SimpleNamespace(sampling_params=params, request_id="r", resumable=True)
    for _ in range(2):
        sessions.admit(engine, request)  # type: ignore[arg-type]
    assert [by for _, by in seen] == ["r", "r"]
    assert len({name for name, _ in seen}) == 2


def test_what_closes_a_session_brings_nothing_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not admitted: neither a program that a client made up nor a prompt's end gets in."""
    monkeypatch.setattr(sessions, "_chunks", {"r": deque(["r"])})
    made_up = {PROGRAM_KEY: "mine", SPEC_KEY: {"id": "joy"}, PROMPT_LEN_KEY: 1, "other": 2}
    params = types.SimpleNamespace(extra_args=made_up)
    closing = types.SimpleNamespace(sampling_params=params, request_id="r", resumable=False)
    assert sessions.admit(types.SimpleNamespace(), closing) == {"other": 2}  # type: ignore[arg-type]


def test_only_a_beam_search_says_where_a_prompt_ends() -> None:
    """A client that could would slip out of what the policy steers in prompts."""
    params = types.SimpleNamespace(extra_args={PROMPT_LEN_KEY: 0, "other": 1})
    assert beams.asked({"prompt_token_ids": [1]}, params).extra_args == {"other": 1}
    assert params.extra_args == {PROMPT_LEN_KEY: 0, "other": 1}
    own = types.SimpleNamespace(extra_args={PROMPT_LEN_KEY: 0})
    assert beams.asked("text", own).extra_args is None
    marked = {beams._MARK: {"hotwire": "[]", PROMPT_LEN_KEY: 3}}
    assert beams.asked(marked, params).extra_args[PROMPT_LEN_KEY] == 3
    plain = types.SimpleNamespace(extra_args=None)
    assert beams.asked("text", plain) is plain
