"""``python -m standpipe`` is the ``standpipe`` command."""

from standpipe.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
