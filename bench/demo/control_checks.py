"""Checks of what an operator does while it serves: register, replace, off and on, limits."""

import json
import time

from bench.demo.api import RefusedError, Steering
from bench.demo.settings import LAYER, SHOWN_SCALE, VECTOR
from bench.demo.stage import NEGATIVE, POSITIVE, UNSTEERED, Check, Stage, yes_no

ALLOWED_SCALE = SHOWN_SCALE / 2
STRICT = Steering(SHOWN_SCALE, strict=True)
UNKNOWN = "jog"


def register(stage: Stage) -> Check:
    """Until the vector is registered its name steers nothing; then it does, without a restart."""
    prompt = stage.prompts[0]
    before = stage.again(prompt, POSITIVE)
    start = time.monotonic()
    answer = stage.control("register", str(stage.places.vector))
    seconds = time.monotonic() - start
    after = stage.alone(prompt, POSITIVE)
    plain = stage.alone(prompt)
    passed = bool(answer["converged"]) and before == plain != after
    nodes = len(answer["nodes"])
    seen = f"in use on {nodes} nodes after {seconds:.2f} s, hotwirectl's start included"
    figures = {
        "seconds": round(seconds, 3),
        "nodes": nodes,
        "generation": int(answer["generation"]),
        "revision": answer["vector"]["revision"],
    }
    return Check("a vector is registered while it serves", passed, seen, figures)


def replace(stage: Stage) -> Check:
    """A name that is registered anew steers with the new vector from the next request on."""
    prompt = stage.prompts[1]
    negative, positive = stage.alone(prompt, NEGATIVE), stage.alone(prompt, POSITIVE)
    stage.control("register", str(stage.places.opposite), "--name", VECTOR)
    opposite = stage.again(prompt, POSITIVE)
    stage.control("register", str(stage.places.vector))
    restored = stage.again(prompt, POSITIVE)
    passed = opposite == negative != positive == restored
    seen = f"the negated vector at + gives the text of -: {yes_no(opposite == negative)}"
    figures = {"opposite": opposite == negative, "restored": restored == positive}
    return Check("a name is pointed to another vector", passed, seen, figures)


def kill_switch(stage: Stage) -> Check:
    """Off: nothing is steered. On: everything is as before."""
    prompt = stage.prompts[2]
    plain, steered = stage.alone(prompt), stage.alone(prompt, POSITIVE)
    stage.control("off")
    try:
        while_off = stage.again(prompt, POSITIVE)
        refusal = _refusal(stage, prompt)
    finally:
        stage.control("on")
    after = stage.again(prompt, POSITIVE)
    passed = while_off == plain != steered == after and "KILL_SWITCH" in refusal
    seen = f"off: plain text, strict gets 400: {yes_no('KILL_SWITCH' in refusal)}; on: steered"
    figures = {"off": while_off == plain, "on": after == steered, "strict_refusal": refusal}
    return Check("the kill switch", passed, seen, figures)


def dose_limit(stage: Stage) -> Check:
    """Over the limit: plain text, or a 400 if strict. Under it: steered as before."""
    prompt = stage.prompts[3]
    small = Steering(ALLOWED_SCALE)
    plain, little = stage.alone(prompt), stage.alone(prompt, small)
    one = _dose_of_scale_one(stage)
    limit = round(one * (ALLOWED_SCALE + SHOWN_SCALE) / 2, 4)
    norms = str(stage.places.norms)
    stage.control("policy", "set", "--max-relative-dose", str(limit), "--reference-norms", norms)
    try:
        over, under = stage.again(prompt, POSITIVE), stage.again(prompt, small)
        refusal = _refusal(stage, prompt)
    finally:
        stage.control("policy", "set", "--max-relative-dose", "none")
    passed = over == plain != little == under and "DOSE_EXCEEDED" in refusal
    seen = f"limit {limit:.3f}: scale {SHOWN_SCALE:g} is {one * SHOWN_SCALE:.3f}, plain or 400"
    figures = {
        "limit": limit,
        "relative_dose": {
            f"{scale:g}": round(one * scale, 4) for scale in (ALLOWED_SCALE, SHOWN_SCALE)
        },
        "over_is_plain": over == plain,
        "under_is_steered": under == little,
        "strict_refusal": refusal,
    }
    return Check("a dose limit rejects one request", passed, seen, figures)


def unknown_vector(stage: Stage) -> Check:
    """A name that nobody registered: plain text, or a 400 that suggests the right one."""
    prompt = stage.prompts[4]
    text = stage.again(prompt, Steering(SHOWN_SCALE, name=UNKNOWN))
    refusal = _refusal(stage, prompt, Steering(SHOWN_SCALE, name=UNKNOWN, strict=True))
    passed = text == stage.alone(prompt, UNSTEERED) and "VECTOR_NOT_FOUND" in refusal
    seen = f"{UNKNOWN!r}: plain text; strict gets 400 {refusal!r}"
    return Check("an unknown vector", passed, seen, {"strict_refusal": refusal})


def counted(stage: Stage) -> Check:
    """Each request that ran unsteered though it asked is counted under its reason."""
    engines = stage.control("stats")["engines"]
    found = {k: int(v) for engine in engines for k, v in engine["requests_unsteered_total"].items()}
    # Two for the unknown name: the very first request came before the vector.
    wanted = {"VECTOR_NOT_FOUND": 2, "KILL_SWITCH": 1, "DOSE_EXCEEDED": 1}
    counts = {reason: found.get(reason, 0) for reason in wanted}
    seen = ", ".join(f"{reason} {count}" for reason, count in counts.items())
    steered = sum(int(engine["requests_steered_total"]) for engine in engines)
    return Check(
        "every degraded request is counted",
        counts == wanted,
        seen,
        {"unsteered": found, "steered": steered},
    )


def _refusal(stage: Stage, prompt: str, steering: Steering = STRICT) -> str:
    """The message of the 400 that a strict request gets; empty if it is answered."""
    try:
        stage.again(prompt, steering)
    except RefusedError as refusal:
        return str(refusal)
    return ""


def _dose_of_scale_one(stage: Stage) -> float:
    vector = stage.control("show", VECTOR)
    norms = json.loads(stage.places.norms.read_text())
    return float(vector["norms"][LAYER]) / float(norms[str(LAYER)])
