"""``python -m standpipe.doctor`` is ``standpipe doctor``, where the command isn't on the path."""

import sys

from standpipe.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "doctor")
    raise SystemExit(main())
