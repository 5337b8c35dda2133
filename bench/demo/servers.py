"""The processes of the demo: `vllm serve` with the plugin, and `hotwired serve`."""

import socket
import sys
from pathlib import Path

from bench.demo.processes import Process
from bench.demo.settings import MAX_MODEL_LEN, MODEL_NAME, Places

BIN = Path(sys.executable).parent


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def vllm(places: Places, port: int) -> Process:
    """The server as vLLM ships it, compiled, with prefix caching and the plugin."""
    command = [str(BIN / "vllm"), "serve", str(places.model), "--served-model-name", MODEL_NAME]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--max-model-len", str(MAX_MODEL_LEN), "--enable-prefix-caching"]
    command += ["--enable-prompt-tokens-details", "--max-num-seqs", "32"]
    environment = {
        "HF_HUB_OFFLINE": "1",
        "HOTWIRE_RUN_DIR": str(places.run_dir),
        "VLLM_CACHE_ROOT": str(places.cache / "vllm"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "hotwire_plugin",
    }
    return Process("vllm serve", command, places.out / "logs" / "vllm.log", environment)


def hotwired(places: Places) -> Process:
    """The daemon, its state under `places.out`."""
    command = [str(BIN / "hotwired"), "serve", "--run-dir", str(places.run_dir)]
    command += ["--state-dir", str(places.out / "state")]
    return Process("hotwired serve", command, places.out / "logs" / "hotwired.log", {})
