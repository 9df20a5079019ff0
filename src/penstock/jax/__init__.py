"""penstock for JAX: batches as arrays on device, for one process and for a mesh.

::

    import penstock as ps
    import penstock.jax

    train = ps.Pipeline(ps.ImageFolder("photos")).shuffle(seed=7).map(…).batch(256)
    for batch in penstock.jax.loader(train, sharding=NamedSharding(mesh, P("data")), memory="2GiB"):
        state = step(state, batch["image"], batch["label"])
"""

from penstock.jax.loader import JaxLoader, loader

__all__ = ["JaxLoader", "loader"]
