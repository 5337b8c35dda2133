"""Reads the files that people hold vectors in, and writes the one that the daemon takes."""
