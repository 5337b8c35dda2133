"""Measurements: speed, memory, and the demo that runs the whole path once."""
