"""The ``standpipe`` command, run as ``python -m standpipe``."""

from standpipe.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
