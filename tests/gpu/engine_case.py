"""One engine on the GPU against Hugging Face in eager mode: python engine_case.py MODE WORK.

A small Llama with random weights, in bfloat16. Prints one JSON object of figures. Started by
``test_engine.py`` in a process of its own, since a GPU is clean only once a process has ended.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

MODES: dict[str, dict[str, Any]] = {
    "full_and_piecewise": {},
    "piecewise": {"compilation_config": {"cudagraph_mode": "PIECEWISE"}},
    "eager": {"enforce_eager": True},
    "v1_runner": {},
}
LAYERS, HIDDEN, TOKENS = 6, 512, 24


def main() -> None:
    """Run the mode and print what came out."""
    mode, work = sys.argv[1], Path(sys.argv[2])
    os.environ.update(
        VLLM_PLUGINS="hotwire_plugin",
        HOTWIRE_VECTORS=str(work / "vectors"),
        HOTWIRE_RUN_DIR=str(work / "run"),
        HF_HUB_OFFLINE="1",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",  # whole batches from the first step
        VLLM_USE_V2_MODEL_RUNNER="0" if mode == "v1_runner" else "1",
    )
    model = _make_model(work / "model")
    _make_vectors(work / "vectors")
    outputs = _generate(str(model), MODES[mode])
    print("RESULT " + json.dumps(_compare(model, work / "vectors", outputs)))


def _make_model(folder: Path) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=HIDDEN,
        intermediate_size=1024,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.05,
    )
    if not (folder / "config.json").exists():
        LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def _make_vectors(folder: Path) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(2)
    for name in ("a", "b"):
        rows = torch.randn(LAYERS, HIDDEN, generator=generator)
        torch.save(rows / rows.norm(dim=1, keepdim=True), folder / f"{name}.pt")
    torch.save(torch.zeros(LAYERS, HIDDEN), folder / "zero.pt")


SPECS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "zero": [{"id": "zero"}],
    "one": [{"id": "a", "layer": 3, "scale": 12.0}],
    "all": [{"id": "a", "scale": 3.0}],
    "other": [{"id": "b", "scale": -4.0}],
    "stacked": [{"id": "a", "layer": 2, "scale": 4.0}, {"id": "b", "layer": 2, "scale": 4.0}],
    "generated": [{"id": "a", "scale": 3.0, "decode_only": True}],
}
ROUNDS = [
    ["none", "none", "none"],
    ["none", "one", "all"],
    ["none", "zero", "zero"],
    ["other", "none", "generated", "stacked", "all"],
    ["none", "none", "none"],
]
"""Batches run one after another on one engine: rows and vectors change between replays."""


def _prompt(n: int) -> list[int]:
    return [(n * 131 + i * 17) % 2000 + 1 for i in range(20 + n)]


def _generate(model: str, options: dict[str, Any]) -> list[list[dict[str, Any]]]:
    from vllm import LLM, SamplingParams

    llm = LLM(
        model,
        skip_tokenizer_init=True,
        max_model_len=256,
        max_num_seqs=16,
        gpu_memory_utilization=0.2,
        kv_cache_memory_bytes=1 << 30,  # several engines start at once on one GPU
        enable_prefix_caching=False,
        **options,
    )
    rounds = []
    for names in ROUNDS:
        params = [
            SamplingParams(
                max_tokens=TOKENS,
                temperature=0,
                ignore_eos=True,
                detokenize=False,
                logprobs=5,
                extra_args={"hotwire": json.dumps(SPECS[name])} if SPECS[name] else None,
            )
            for name in names
        ]
        prompts = [{"prompt_token_ids": _prompt(n)} for n in range(len(names))]
        done = llm.generate(prompts, params, use_tqdm=False)
        rounds.append(
            [
                {
                    "spec": name,
                    "prompt": prompts[n]["prompt_token_ids"],
                    "tokens": list(o.outputs[0].token_ids),
                    "logprobs": [
                        {k: v.logprob for k, v in step.items()} for step in o.outputs[0].logprobs
                    ],
                }
                for n, (name, o) in enumerate(zip(names, done, strict=True))
            ]
        )
    return rounds


def _compare(model: Path, vectors: Path, rounds: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the greatest logprob difference to the fp32 reference, by specification."""
    import torch
    from transformers import LlamaForCausalLM

    reference = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32).cuda().eval()
    rows = {f.stem: torch.load(f, weights_only=True).cuda() for f in vectors.glob("*.pt")}
    worst: dict[str, float] = {}
    moved: dict[str, float] = {}
    for outputs in rounds:
        for out in outputs:
            want = _reference(reference, rows, out, SPECS[out["spec"]])
            base = _reference(reference, rows, out, [])
            name = out["spec"]
            worst[name] = max(worst.get(name, 0.0), _gap(out["logprobs"], want))
            moved[name] = max(moved.get(name, 0.0), float((want - base).abs().max()))
    return {"worst": worst, "moved": moved, "rounds": rounds}


def _gap(got: list[dict[int, float]], want: Any) -> float:
    return max(
        abs(value - float(want[step, int(token)]))
        for step, top in enumerate(got)
        for token, value in top.items()
    )


def _reference(model: Any, rows: Any, out: dict[str, Any], spec: list[dict[str, Any]]) -> Any:
    """Return (generated, vocabulary) logprobs of the same tokens with hooks on block outputs."""
    import torch

    ids = torch.tensor([out["prompt"] + out["tokens"]], device="cuda")
    start = len(out["prompt"])

    def hook(layer: int) -> Any:
        def steer(_module: Any, _inputs: Any, output: Any) -> Any:
            stream = output[0] if isinstance(output, tuple) else output
            for entry in spec:
                if entry.get("layer", layer) == layer:
                    first = start if entry.get("decode_only") else 0
                    stream[:, first:] += entry.get("scale", 1.0) * rows[entry["id"]][layer]
            return output

        return steer

    hooks = [b.register_forward_hook(hook(i)) for i, b in enumerate(model.model.layers)]
    with torch.inference_mode():
        logits = model(ids).logits[0, start - 1 : -1].float()
    for handle in hooks:
        handle.remove()
    return torch.log_softmax(logits, dim=-1)


if __name__ == "__main__":
    main()
