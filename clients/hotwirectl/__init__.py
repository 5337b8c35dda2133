"""hotwirectl: the command line of hotwired, the steering daemon."""
