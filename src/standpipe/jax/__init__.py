"""standpipe for JAX: batches as arrays on device, for one process and for a mesh.

::

    import standpipe as sp
    import standpipe.jax

    train = sp.Pipeline(sp.ImageFolder("photos")).shuffle(seed=7).map(…).batch(256)
    for batch in standpipe.jax.loader(train, sharding=NamedSharding(mesh, P("data")), memory="2GiB"):
        state = step(state, batch["image"], batch["label"])
"""

from standpipe.jax.loader import JaxLoader, loader

__all__ = ["JaxLoader", "loader"]


def __dir__() -> list[str]:
    """Return the public names, without the modules that define them."""
    return __all__
