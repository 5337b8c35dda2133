"""Prometheus metrics of the daemon and of what its nodes report."""
