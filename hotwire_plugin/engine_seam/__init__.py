"""Everything that knows a private name of vLLM, one file a seam.

Each seam is installed when vLLM imports the module it belongs to, and checks the names it needs:
one that has moved disarms steering with one clear line, and the model serves on.
"""
