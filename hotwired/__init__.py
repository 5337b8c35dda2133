"""The daemon that keeps steering vectors and policy and carries them to vLLM engines."""

__version__ = "0.1.0"
