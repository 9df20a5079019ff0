"""A library that feeds training batches to accelerators.

A ``Pipeline`` describes the data: a source, an order, transforms and batches. Its ``loader()`` returns
an iterable of batches, which are dicts of arrays::

    import standpipe as sp

    train = (
        sp.Pipeline(sp.ImageFolder("photos"))
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(256)
    )
    with train.loader(memory="2GiB") as loader:
        for batch in loader:
            step(batch["image"], batch["label"])

``train.plan().explain()`` shows sizes and settings before a run. ``standpipe.torch`` and
``standpipe.jax`` deliver tensors and JAX arrays.
"""

from _ast import ImportFrom, PyCF_ONLY_AST
from importlib import import_module

from standpipe.hints import unknown_name


def _modules() -> dict[str, str]:
    """Return the module of each public name, as ``__init__.pyi`` has them."""
    stub = f"{__file__}i"
    with open(stub, encoding="utf-8") as file:  # noqa: PTH123 (pathlib takes as long to import as all else here)
        tree = compile(file.read(), stub, "exec", PyCF_ONLY_AST, dont_inherit=True)
    return {
        each.name: node.module for node in tree.body if isinstance(node, ImportFrom) for each in node.names
    }


_MODULES = _modules()
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    """Import the module of a public name when it is first asked for. ``import standpipe`` alone is quick.

    Raise ``AttributeError`` for other names, with what to write instead if that is known.
    """
    if name == "__version__":
        from importlib.metadata import version

        return version("standpipe")
    if name not in _MODULES:
        raise unknown_name(name, __all__)
    if _MODULES[name] == __name__:
        return import_module(f"{__name__}.{name}")
    from standpipe.answers import answering_of

    found = answering_of(getattr(import_module(_MODULES[name]), name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names, also those whose modules aren't imported yet."""
    return [*__all__, "__version__"]
