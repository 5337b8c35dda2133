"""The live screen of `stats --watch`: rates worked out from samples, and drawn by rich."""
