"""Names from torch, torchvision and tf.data, and their counterparts in standpipe, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

_NAMED = "write .batch(batch_size, batch_sampler=True) on the pipeline, and iterate over loader.from_batches(batches)"
_MAP = "write .map(transform) on the pipeline"
ON_CPUS = "JPEGs are decoded on CPUs, and standpipe.ray adds those of other machines"
_DECODE = f"leave it out: {ON_CPUS}"
RUN = {  # arguments of plan() and loader()
    "workers": "write num_workers=",
    "num_threads": "write .loader(num_workers=…)",
    "num_parallel_calls": "write .loader(num_workers=…)",
    "prefetch_factor": "write prefetch=, the number of batches that are made ahead",
    "timeout": "write stall_timeout_s=",
    "multiprocessing_context": "write mp_context=",
    "batch_size": "write .batch(batch_size) on the pipeline",
    "drop_last": "write .batch(batch_size, last_batch='drop') on the pipeline",
    "last_batch": "write .batch(batch_size, last_batch=…) on the pipeline",
    "collate_fn": "write .batch(batch_size, collate_fn=…) on the pipeline",
    "shuffle": "write .shuffle(seed=…) on the pipeline",
    "seed": "write .shuffle(seed=…) on the pipeline",
    "generator": "write .shuffle(seed=…) on the pipeline",
    "sampler": _NAMED,
    "batch_sampler": _NAMED,
    "pin_memory": "leave it out: standpipe.torch.loader(pipeline, device='cuda') pins memory by itself",
    "persistent_workers": "leave it out: workers live as long as their loader",
    "worker_init_fn": "write initializer=, a function without arguments, or leave it out if it only sets seeds",
    "in_order": "leave it out: batches always come in order",
    "world_size": "write .shard(rank, world_size) on the pipeline",
    "transform": _MAP,
    "transforms": "write .map(first, second) on the pipeline",
    "decode_device": _DECODE,
}
OTHERS = RUN | {"num_workers": "write .loader(num_workers=…)"}  # arguments of any call
BATCH = {  # arguments of batch()
    "drop_last": "write last_batch='drop'",
    "drop_remainder": "write last_batch='drop'",
    "sampler": "write batch_sampler=True, and iterate over loader.from_batches(batches)",
}
ARGUMENTS = {  # of single calls
    "batch": BATCH,
    "decode": {"device": _DECODE, "share": _DECODE, "gpu_memory": _DECODE},
    "shuffle": {"buffer_size": "leave it out: .shuffle(seed=…) shuffles all records, without a buffer"},
    "shard": {"num_shards": "write world_size=", "index": "write rank="},
    "cache": {"memory": "write .cache(sp.Cache('photos', memory='8GiB'))"},
    "ImageFolder": {"target_transform": "write .map(function, field='label') on the pipeline"},
    "Resize": {"antialias": "leave it out: Resize always antialiases, as Pillow does"},
    "RandomResizedCrop": {"antialias": "leave it out: RandomResizedCrop always antialiases, as Pillow does"},
    "MixUp": {"classes": "write num_classes="},
    "Mixture": {
        "weights": "write sp.Mixture({first: 0.7, second: 0.3})",
        "seed": "write sp.Pipeline(mixture, seed=…)",
    },
}
CALLS = {  # what to write where arguments are missing, or have no names
    "shuffle": "write .shuffle(seed=7), which shuffles all records, without a buffer",
    "split": "write .split(0.9, seed=7), for 90% of the records and the rest",
    "sample": "write .sample(seed=7, balance='label')",
    "batch": "write .batch(256, last_batch='drop')",
    "cache": "write .cache('auto')",
    "loader": "write pipeline.loader(num_workers=4), or standpipe.torch.loader(pipeline)",
    "ImageFolder": "write sp.ImageFolder('photos'), and .map(transform) on the pipeline",
    "Views": "write sp.Views(a=[…], b=[…])",
    "Pipeline": "write sp.Pipeline(sp.ImageFolder('photos'))",
    "MixUp": "write sp.MixUp(0.2, num_classes=1000)",
    "Mixture": "write sp.Mixture({first: 0.7, second: 0.3})",
    "Resize": "write sp.Resize((height, width)) or sp.Resize(256, interpolation='bicubic')",
    "CenterCrop": "write sp.CenterCrop((height, width))",
}
METHODS = {  # of a pipeline, and what Python calls for operators
    "__iter__": "a Pipeline has no batch. Iterate over its loader: 'with pipeline.loader() as loader: …'",
    "__getitem__": "pipeline[{0!r}]: pipeline.select([{0!r}]) selects a record, and .loader().peek() returns a batch",
    "__len__": "len(pipeline): write len(pipeline.loader()) for batches, pipeline.plan().rows_per_epoch for records",
    "__add__": "{name} + …: write sp.Concat(first, second) of sources, or sp.Mixture of pipelines",
    "batch_size": "write .batch(8)",
    "explain": "write .plan().explain()",
    "classes": "write .plan().classes",
    "num_workers": "write .loader(num_workers=4)",
    "transform": _MAP,
    "repeat": "leave it out: each iter(loader) is the next epoch, and loader.steps(n) goes on across epochs",
    "prefetch": "write .loader(prefetch=4)",
    "padded_batch": "write .batch(8, collate={'tokens': sp.Pad()})",
    "to": "write standpipe.torch.loader(pipeline, device='cuda')",
    "to_tuple": "write standpipe.torch.loader(pipeline, fields=('image', 'label'))",
    "with_format": "write standpipe.torch.loader(pipeline)",
    "set_transform": _MAP,
    "random_split": "write .split(0.9, seed=7)",
}
LOADER = {
    "reset": "leave it out: each iter(loader) is the next epoch",
    "sampler": "leave .set_epoch() out: each iter(loader) is the next epoch, in an order of its own",
    "dataset": "loader.plan.source names the data, and .map(transform) on the pipeline changes samples",
}
SOURCE = {
    "__getitem__": "{name}(…)[{0!r}]: write sp.Pipeline(source), whose .show() draws samples",
    "__len__": "len({name}(…)): pipeline.plan().rows_per_epoch is the number of records",
    "__add__": "{name} + …: write sp.Concat(first, second)",
    "classes": "write pipeline.plan().classes",
    "transform": _MAP,
}
# Of public classes, by a name in each: an object in words, hints, and what to write in all other cases.
KINDS = {
    "run_filters": ("a Pipeline", METHODS, "its methods are {known}"),
    "set_epoch": ("a Loader", LOADER, "what it delivers is described on the pipeline, before .loader()"),
    "open": ("a source", SOURCE, "write sp.Pipeline(source), which has .map, .shuffle and .batch"),
    "draw_kind": ("a transform", dict[str, str](), "write .map(transform) on the pipeline"),
}
NAMES = {  # of the package
    "Dataset": "wrap yours: sp.MapSource(dataset)",
    "IterableDataset": "wrap yours: sp.IterableSource(factory)",
    "TensorDataset": "write sp.Arrays(image=…, label=…)",
    "ConcatDataset": "write sp.Concat(…)",
    "Subset": "write .select(indices) on the pipeline",
    "random_split": "write .split(0.9, seed=…) on the pipeline",
    "DataLoader": "write pipeline.loader(…), or use standpipe.torch.DataLoader, which has torch's arguments",
    "default_collate": "leave it out, or write .batch(batch_size, collate=…)",
    "RandomSampler": "write .shuffle(seed=…) on the pipeline",
    "WeightedRandomSampler": "write .sample(seed=…, weights=…) on the pipeline",
    "DistributedSampler": "write .shard(rank, world_size) on the pipeline",
    "BatchSampler": "write .batch(batch_size) on the pipeline",
    "Compose": "write .map(first, second) on the pipeline",
    "ElasticTransform": "give torchvision's ElasticTransform to .map()",
    "ToTensor": "write sp.ToDtype('float32', scale=True), which gives (3, H, W) from 0 to 1, or sp.Normalize()",
    "datasets": "write sp.ImageFolder(…), or sp.MapSource(dataset) for an object of torchvision.datasets",
    "load_dataset": "write sp.MapSource(datasets.load_dataset(…, split='train'))",
    "transforms": "its transforms are names of the package, such as sp.CenterCrop",
    "WebDataset": "write sp.TarShards('train-{000..146}.tar')",
    "TFRecordDataset": "write sp.TFRecords('train-*', image='image/encoded', label='image/class/label')",
    "StreamingDataset": "write sp.MDS('mds/train')",
    "ImageList": "write sp.FileList('list.txt')",
    "CIFAR10": "write sp.MapSource(torchvision.datasets.CIFAR10(…))",
    "from_tensor_slices": "write sp.Arrays(image=…, label=…)",
    "AUTOTUNE": "write num_workers='auto', which is the default",
    "pipeline_def": "write sp.Pipeline(source).map(…).batch(…)",
    "CropMirrorNormalize": "write .map(sp.CenterCrop(224), sp.RandomHorizontalFlip(), sp.Normalize())",
    "torch": "write import standpipe.torch",
    "jax": "write import standpipe.jax",
}


def unknown_argument(
    call: str, names: Iterable[str], known: Collection[str], hints: dict[str, str]
) -> TypeError:
    """Return the error for arguments ``names`` that a function doesn't take, with what to write instead.

    call   the function's name, for the message
    known  names of the arguments that it takes
    hints  what to write instead, by argument
    """
    told = []
    for name in sorted(names):
        near = difflib.get_close_matches(name, known, n=1)
        takes = ", ".join(f"{each}=" for each in known)
        there = f"did you mean {near[0]}=?" if near else f"it takes {takes}" if takes else "leave it out"
        told.append(f"{call} takes no {name}=: {hints.get(name, there)}")
    error = TypeError("; ".join(told))
    error.is_answer = True  # type: ignore[attr-defined]  # so that ``answering`` leaves standpipe's lines out
    return error


def unknown_name(
    name: str,
    known: Collection[str],
    owner: str = "module 'standpipe'",
    there: str = "sp.",
    hints: Mapping[str, str] = NAMES,
    others: str = "dir(sp) lists its names",
) -> AttributeError:
    """Return the error for a name that the package or an object doesn't have, with what to write instead.

    owner   what has no such name, for the message
    there   text before a name that it has
    hints   what to write instead, by name
    others  what to write instead of names without a hint; ``{known}`` stands for the known names
    """
    by_case = {each.casefold(): each for each in known if not each.startswith("_")}
    near = difflib.get_close_matches(name.casefold(), by_case, n=1, cutoff=0.8)
    all_known = ", ".join(by_case.values())
    other = f"did you mean {there}{by_case[near[0]]}?" if near else others.format(known=all_known)
    return AttributeError(f"{owner} has no attribute {name!r}: {hints.get(name, other)}")
