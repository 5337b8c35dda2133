"""What the settings may be, whoever gives them: a flag, the environment or a context."""

from hotwire_client.address import target_of

#: A day is the longest that a call may take.
MAX_TIMEOUT = 86400.0

FORMATS = ("table", "wide", "json", "yaml", "name")


def parse_timeout(value: str) -> float:
    """Returns the seconds; raises ValueError unless 0 < value <= MAX_TIMEOUT."""
    seconds = float(value)
    if not 0 < seconds <= MAX_TIMEOUT:
        raise ValueError(f"{value} is not a number of seconds above 0, up to {MAX_TIMEOUT:g}")
    return seconds


def parse_server(value: str) -> str:
    """Returns the address as it is; raises ValueError unless it is one."""
    target_of(value)
    return value
