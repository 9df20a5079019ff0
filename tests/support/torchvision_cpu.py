"""torchvision, beside whichever torch is there:  ``from torchvision_cpu import torchvision``

Its wheel is compiled against a CUDA build of torch. Beside a CPU build its operators don't load, and its
import fails where their shapes are registered. Transforms need none: here they get a name and no body.
"""

import importlib.util
import re
from pathlib import Path

import torch

from uncompiled import without_the_compiler


def declare_missing_operators() -> torch.library.Library | None:
    """Declare torchvision's operators unless its own library loads; they live as long as what is returned."""
    found = importlib.util.find_spec("torchvision")
    assert found is not None, "torchvision isn't installed: make test installs it"
    assert found.origin is not None
    folder = Path(found.origin).parent
    try:
        torch.ops.load_library(str(folder / "_C.so"))
    except OSError:
        registered = (folder / "_meta_registrations.py").read_text(encoding="utf-8")
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in sorted(set(re.findall(r'(?:register_meta\("|"torchvision::)(\w+)', registered))):
            library.define(f"{name}(Tensor input) -> Tensor")
        return library
    return None


OPERATORS = declare_missing_operators()

with without_the_compiler():
    import torchvision
    import torchvision.transforms.v2

__all__ = ["torchvision"]
