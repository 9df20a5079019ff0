"""``python -m penstock.doctor`` is ``penstock doctor``, where the command isn't on the path."""

import sys

from penstock.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "doctor")
    raise SystemExit(main())
