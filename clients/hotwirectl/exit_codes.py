"""The exit codes, in one place: the help text and the documentation are checked against it."""

import grpc

DONE = 0
UNEXPECTED = 1
USAGE = 2
NOT_CONVERGED = 3
UNHEALTHY = 4
INCOMPLETE = 5
INTERRUPTED = 130

_GRPC_BASE = 64

HELP = """\
\b
Exit codes:
  0    done, also if there was nothing to do
  1    something unexpected
  2    the command line or a file named in it is wrong
  3    accepted, but not in use on every node in time
  4    the daemon answers, and is not healthy; a check of `verify` failed
  5    no check of `verify` failed, but not all could be shown
  64+N the call failed with gRPC status N, such as
       67 invalid argument     68 deadline exceeded   69 not found
       71 permission denied    72 resource exhausted  73 failed precondition
       74 aborted              77 internal            78 daemon unavailable
  130  interrupted, but for a `--watch`, which ends with 0
"""


def of_status(code: grpc.StatusCode) -> int:
    """Returns 64 + N for the gRPC status N."""
    number: int = code.value[0]
    return _GRPC_BASE + number
