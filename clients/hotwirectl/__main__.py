"""Makes `python -m hotwirectl` the command."""

from hotwirectl.main import main

main()
