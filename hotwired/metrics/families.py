"""Every metric of ours: its name, type, labels and meaning. docs/metrics.md is the same table.

No label holds what callers make up: no request, vector or caller. Node and engine go by the labels
vllm_instance and node or engine, since `instance` is what Prometheus calls the daemon itself.
"""

from dataclasses import dataclass

INSTANCE = "vllm_instance"
NODE = (INSTANCE, "node")
ENGINE = (INSTANCE, "engine")


@dataclass(frozen=True, slots=True)
class Family:
    """A metric as it is exposed. kind: "counter", "gauge" or "histogram"."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def unit(self) -> str:
        """Returns "seconds" or "bytes" if it has a unit, "" if it counts."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in {"seconds", "bytes"} else ""


RPC_DURATION = Family(
    "hotwired_rpc_duration_seconds",
    "histogram",
    ("method", "code"),
    "How long the daemon's RPCs took, by method and gRPC code; a stream counts when it ends.",
)
PUSHES = Family(
    "hotwired_pushes_total",
    "counter",
    ("outcome",),
    "Calls of RegisterVector, by outcome: converged, pending, unchanged, validated, refused, "
    "failed or cancelled.",
)
PUSH_DURATION = Family(
    "hotwired_push_duration_seconds",
    "histogram",
    (),
    "From a RegisterVector's start until every node used the vector, if that was awaited.",
)
CHANGES = Family(
    "hotwired_changes_total",
    "counter",
    ("action",),
    "Stored changes of vectors and policy, by the audit record's action.",
)
REFUSALS = Family(
    "hotwired_node_refusals_total",
    "counter",
    ("kind", "reason"),
    "What nodes refused, by kind (vector or snapshot) and reason.",
)

BUILD_INFO = Family(
    "hotwired_build_info",
    "gauge",
    ("version", "python_version", "grpc_version"),
    "Always 1; the versions are its labels.",
)
GENERATION = Family("hotwired_generation", "gauge", (), "The newest generation.")
CONVERGED = Family(
    "hotwired_converged",
    "gauge",
    (),
    "1 if every node that answers is as it is to be, or can't be steered at all; else 0.",
)
KILL_SWITCH = Family("hotwired_kill_switch", "gauge", (), "1 if the kill switch is on, else 0.")
VECTORS = Family("hotwired_vectors", "gauge", (), "Registered names.")
STORE_BYTES = Family("hotwired_store_bytes", "gauge", (), "The size of all stored vectors.")
UNREADABLE = Family(
    "hotwired_vectors_unreadable",
    "gauge",
    (),
    "Stored vectors that are missing or damaged on disk.",
)

NODE_GENERATION = Family(
    "hotwired_node_generation",
    "gauge",
    NODE,
    "The generation in force at an engine or a frontend.",
)
NODE_STATE = Family(
    "hotwired_node_state", "gauge", (*NODE, "state"), "1 for the state a node is in, 0 for others."
)
NODE_SEEN = Family(
    "hotwired_node_last_report_timestamp_seconds",
    "gauge",
    NODE,
    "When a node last answered, in seconds since 1970.",
)
NODE_VECTORS = Family(
    "hotwired_node_vectors_held", "gauge", NODE, "The vectors a worker holds in host memory."
)
NODE_BYTES = Family(
    "hotwired_node_vector_bytes", "gauge", NODE, "The host memory of the vectors a worker holds."
)

REQUESTS = Family("hotwired_requests_total", "counter", ENGINE, "Requests admitted.")
STEERED = Family(
    "hotwired_requests_steered_total", "counter", ENGINE, "Requests admitted with steering."
)
UNSTEERED = Family(
    "hotwired_requests_unsteered_total",
    "counter",
    (*ENGINE, "reason"),
    "Requests that asked for steering and run without, by reason.",
)
DOSES = Family(
    "hotwired_dose_decisions_total", "counter", (*ENGINE, "outcome"), "Dose decisions, by outcome."
)
LIVE = Family("hotwired_requests_live", "gauge", ENGINE, "Steered requests that have not ended.")
TOKENS = Family(
    "hotwired_steered_tokens_total",
    "counter",
    ENGINE,
    "Tokens steered, on the worker that steered fewest.",
)
ROWS = Family(
    "hotwired_rows_in_use", "gauge", ENGINE, "Program rows in use, on the worker that uses most."
)
ROWS_CAPACITY = Family("hotwired_rows_capacity", "gauge", ENGINE, "Program rows of a worker.")
SLOTS = Family(
    "hotwired_slots_in_use", "gauge", ENGINE, "Bank slots in use, on the worker that uses most."
)
SLOTS_CAPACITY = Family("hotwired_slots_capacity", "gauge", ENGINE, "Bank slots of a worker.")
FILL_STEPS = Family(
    "hotwired_fill_steps_total",
    "counter",
    ENGINE,
    "Steps whose token map was filled, on the worker that filled most.",
)
FILL_SECONDS = Family(
    "hotwired_fill_seconds_total",
    "counter",
    ENGINE,
    "Host time spent filling, on the worker that spent most.",
)
PROGRAM_ERRORS = Family(
    "hotwired_program_errors_total",
    "counter",
    (*ENGINE, "reason"),
    "Programs that a worker could not apply, by reason; their requests ran unsteered.",
)

COUNTED = (RPC_DURATION, PUSHES, PUSH_DURATION, CHANGES, REFUSALS)
"""What is counted as it happens."""

READ = (
    BUILD_INFO,
    GENERATION,
    CONVERGED,
    KILL_SWITCH,
    VECTORS,
    STORE_BYTES,
    UNREADABLE,
    NODE_GENERATION,
    NODE_STATE,
    NODE_SEEN,
    NODE_VECTORS,
    NODE_BYTES,
    REQUESTS,
    STEERED,
    UNSTEERED,
    DOSES,
    LIVE,
    TOKENS,
    ROWS,
    ROWS_CAPACITY,
    SLOTS,
    SLOTS_CAPACITY,
    FILL_STEPS,
    FILL_SECONDS,
    PROGRAM_ERRORS,
)
"""What is read off the daemon's state when it is asked for."""

FAMILIES = COUNTED + READ
