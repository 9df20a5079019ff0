"""Draw text as a terminal shows it:  python docs/pictures/terminal.py OUTPUT.svg TITLE TEXT_FILE"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 84


def main(output: str, title: str, text_file: str) -> None:
    """Write the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ {title}\n" + Path(text_file).read_text(encoding="utf-8").rstrip()))
    console.save_svg(output, title=title, unique_id="standpipe")


if __name__ == "__main__":
    main(*sys.argv[1:])
