"""Decode speed on a GPU: vanilla vLLM, this plugin and its peer, one after another in one run."""
