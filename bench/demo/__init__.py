"""The demo: a real model, steered live, every claim checked and printed."""
