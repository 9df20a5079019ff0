"""Find the kernels and functions that make samples, and the form of each field in a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from standpipe.batch.collate import Collation, Contents, Pad
from standpipe.batch.instances import InstanceFields
from standpipe.batch.layout import SlotLayout
from standpipe.contracts import Device, Encoded, Finish, OpenSource, PythonSource
from standpipe.errors import PlanError
from standpipe.pipeline.description import Description
from standpipe.plan.whole_frames import stored_channels
from standpipe.spec import DECODED, ArraySpec, Executor, LastBatch, Listed, RaggedSpec
from standpipe.transform import (
    IMAGE,
    MASK,
    BatchFunction,
    ComposedKernel,
    FieldKind,
    Function,
    Mixing,
    NativeKernel,
    NativeStep,
    SampleProgram,
    composed_kernel,
    field_of_view,
    fuse,
    has_compositions,
    kinds_of,
    sample_program,
    split_at_cache,
)
from standpipe.transform.pixels.compositions import ComposingTransform

ONE_KEPT = (
    "cache() after a transform keeps one image of a record, and not its masks or further pictures: put it right after "
    "the source, where it keeps the images' files, or leave it out"
)
ALL = "…"  # stands for fields whose names are measured too


def kernel_or_program(
    pipeline: Description, source: OpenSource, executor: Executor, *, by_sample: bool, pads: bool
) -> tuple[NativeKernel | None, SampleProgram | None]:
    """Return the single native kernel of a pipeline without Python code, or else the steps of Python workers.

    Both are None where rows are only copied.

    by_sample  True if samples are checked one by one
    pads       True if a kernel may write pictures that differ in size into a slot
    """
    if has_compositions(pipeline.transforms):
        return composed(pipeline, source, executor, by_sample=by_sample).last, None
    channels, specs = pipeline.decoding.channels, source.fields.values()
    images = any(isinstance(spec, Encoded) and spec.kind == "image" for spec in specs)
    if channels != "RGB" and not isinstance(source, PythonSource) and not images:
        raise PlanError(
            f"decode(channels={channels!r}) is for encoded images, and this source has arrays, whose channels "
            "stay as they are: leave it out. Grayscale() makes colours grey"
        )
    program = divided(pipeline, source)
    in_python = (
        isinstance(source, PythonSource)
        or not program.is_native
        or executor is Executor.INLINE
        or bool(pipeline.batch_functions)
        or by_sample
    )
    if pads and not in_python and (kernel := _padding_kernel(pipeline, source, program)) is not None:
        return kernel, None
    if in_python or pipeline.collate:
        program = divided(pipeline, source, _cached(pipeline))
        kept = [step for step in program.steps[: program.before_cache] if isinstance(step, NativeStep)]
        if any(len(step.decodes) > 1 for step in kept):
            raise PlanError(ONE_KEPT)
        return None, program
    if not program.steps:
        return None, None
    (step,) = program.steps
    assert isinstance(step, NativeStep)
    # Where the images' size isn't fixed there is no kernel, and this says so.
    whole = step.kernel or fuse(step.transforms, None, inputs=step.inputs)
    if not _cached(pipeline):
        return whole, None
    return kernels_around(pipeline, source)[1], None


def composed(
    pipeline: Description, source: OpenSource, executor: Executor, *, by_sample: bool
) -> ComposedKernel:
    """Return the kernels of rows that are made of several images; ``kernel_or_program`` documents the rest.

    Raises ``PlanError`` where native code doesn't make all of a row.
    """
    what = next(each for each in pipeline.transforms if isinstance(each, ComposingTransform)).describe()
    steps = divided(pipeline, source).steps
    if isinstance(source, PythonSource):
        raise PlanError(
            f"{what} can't follow a dataset's Python code, which runs in workers that have only a part of a batch: "
            "use Coco, YoloLabels or HuggingFace, or write the images' paths and their boxes to files for "
            "FileList('images.txt', instances='boxes.jsonl')"
        )
    for each in (*pipeline.transforms, *pipeline.batch_functions):
        if isinstance(each, Function | BatchFunction):
            raise PlanError(
                f"{what} can't be beside {each.describe()}, which runs in workers that have only a part of a batch: "
                "use standpipe's transforms, store images that it has changed once, or call it in your loop"
            )
    if executor is Executor.INLINE or by_sample:
        raise PlanError(
            f"{what} needs executor='thread', and labels that a column has: leave out executor='inline'"
        )
    if _cached(pipeline) > 0 or pipeline.collate:
        raise PlanError(
            f"{what} can't follow a cache of images, or be collated: put cache() right after the source"
        )
    if pipeline.budget is not None or pipeline.batch_sampler or pipeline.groups is not None:
        raise PlanError(f"{what} needs batches of one length: use batch(batch_size)")
    (step, *_) = steps or (None,)
    known = source.locate(np.zeros(0, np.int64)).sizes is not None
    if not isinstance(step, NativeStep) or len(step.inputs) > 1 or not known:
        raise PlanError(
            f"{what} needs one encoded image a record, whose size is known before it is decoded: use a source with "
            "boxes, such as Coco or YoloLabels"
        )
    return composed_kernel(pipeline.transforms, step.source_px, step.inputs[0])


def _padding_kernel(pipeline: Description, source: OpenSource, program: SampleProgram) -> NativeKernel | None:
    """Return a kernel that writes pictures which differ in size into a slot, with their padding.

    None if it can't: sizes must be known before pictures are made, each field that differs in size needs its ``Pad``,
    and nothing else may be collated.
    """
    most = {
        name: (how.length or how.max_shape, how.value)
        for name, how in pipeline.collate.items()
        if isinstance(how, Pad)
    }
    canvases = {name: (shape, value) for name, (shape, value) in most.items() if isinstance(shape, tuple)}
    (step, *_) = program.steps or (None,)
    if (
        not isinstance(step, NativeStep)
        or step.kernel is not None
        or not canvases.keys() == pipeline.collate.keys() == {each.field for each in step.inputs}
        or _cached(pipeline) > 0
        or source.locate(np.zeros(0, np.int64)).sizes is None
    ):
        return None
    try:
        inputs = [replace(each, canvas=canvases[each.field]) for each in step.inputs]
        return fuse(step.transforms, None, inputs=inputs)
    except PlanError:  # a transform must know the size, or the shapes have another form
        return None


def divided(pipeline: Description, source: OpenSource, cached: int = 0) -> SampleProgram:
    """Return the steps of a pipeline's samples. ``cached``: number of transforms before the cache."""
    return sample_program(
        [each for each in pipeline.transforms if not isinstance(each, ComposingTransform)],
        _plain_fields(source),
        cached,
        whole=_is_declared(source),
        channels=decoded_channels(pipeline, source),
        pictures=pipeline.decoding.pictures,
        unmoved=pipeline.unmoved,
        counts=partial(matters, pipeline),
    )


def _is_declared(source: OpenSource) -> bool:
    """Return False if only samples show which fields a source has."""
    return not isinstance(source, PythonSource) or source.declared is not None


def _plain_fields(source: OpenSource) -> Mapping[str, ArraySpec | Encoded | Listed]:
    """Return the fields of a source without those of instances."""
    return {name: spec for name, spec in source.fields.items() if not isinstance(spec, RaggedSpec)}


def picture_kinds(pipeline: Description, source: OpenSource) -> dict[str, FieldKind]:
    """Return the kinds of the fields that may be pictures, the reference first."""
    kinds = kinds_of(_plain_fields(source), pipeline.decoding.pictures, whole=_is_declared(source))
    return {**(kinds or {"image": IMAGE}), MASK.name: MASK}


def _cached(pipeline: Description) -> int:
    """Return the number of transforms before the cache; 0 without a cache."""
    cached = pipeline.cached
    return 0 if cached is None or cached.cache.is_off else cached.after


def kernels_around(pipeline: Description, source: OpenSource) -> tuple[NativeKernel, NativeKernel]:
    """Return two kernels of native transforms: before a cache, which makes (H, W, C) uint8, and after it.

    Together they give the same rows as one kernel. Raises ``PlanError`` if images at the cache have no fixed
    size.
    """
    assert pipeline.cached is not None
    before, behind = split_at_cache(pipeline.transforms, pipeline.cached.after)
    step = divided(pipeline, source).steps[0]
    assert isinstance(step, NativeStep)
    if len(step.inputs) > 1:
        raise PlanError(ONE_KEPT)
    try:
        first = fuse(before, step.source_px, inputs=step.inputs)
    except PlanError as error:
        raise PlanError(
            "cache() needs images of a fixed size. Put a transform that fixes the size before it, such "
            "as CenterCrop(size) or Resize((height, width)), or put cache() right after the source"
        ) from error
    if first.views:
        raise PlanError("cache() can't come after Views. Put it before Views, or right after the source")
    kept = replace(first.image.input, channels=first.image.channels_after)
    return first, fuse(behind, first.image.size_px, earlier=before, inputs=[kept])


def decoded_channels(pipeline: Description, source: OpenSource) -> Callable[[str], int]:
    """Return a function that returns the number of channels that a field's images have when they are decoded."""
    decoded = DECODED[pipeline.decoding.channels]
    return lambda field: stored_channels(source, pipeline.limits, field) if decoded is None else decoded


def device_share(
    pipeline: Description,
    source: OpenSource,
    executor: Executor,
    device: Device,
    *,
    by_sample: bool,
    mixes: bool,
    pads: bool,
) -> tuple[NativeKernel | None, SampleProgram | None, Finish | None, tuple[Mixing, ...]]:
    """Return ``kernel_or_program`` for slots that suit the device, and the device's part of the work.

    That part is how images are finished, and how they are mixed. A device mixes where native code does
    everything else.

    mixes  True if the device mixes
    pads   as for ``kernel_or_program``
    """
    mixings = _mixings(pipeline, source) if mixes else ()
    kernel, program = kernel_or_program(
        replace(pipeline, batch_functions=()) if mixings else pipeline,
        source,
        executor,
        by_sample=by_sample,
        pads=pads,
    )
    if mixings and (kernel is None or kernel.views):
        mixings = ()
        kernel, program = kernel_or_program(pipeline, source, executor, by_sample=by_sample, pads=pads)
    if kernel is None or kernel.finish is None:
        return kernel, program, None, mixings
    return kernel.finished_by(device.writes(kernel.finish)), program, kernel.finish, mixings


def _mixings(pipeline: Description, source: OpenSource) -> tuple[Mixing, ...]:
    """Return the functions of batches, if all of them mix native images and plain labels."""
    functions = [function.mixing for function in pipeline.batch_functions]
    mixings = tuple(mixing for mixing in functions if mixing is not None)
    plain = all(
        mixing.image == "image" and isinstance(source.fields.get(mixing.label), ArraySpec)
        for mixing in mixings
    )
    return mixings if plain and len(mixings) == len(functions) else ()


def matters(pipeline: Description, field: str) -> bool:
    """Return True if it matters that a field fits the image: it is delivered, and not among ``map(unmoved=…)``.

    ``pipeline.delivered`` has the names of the fields that an adapter delivers; it is None if all are. Where any are,
    functions of batches in Python may deliver each of them by another name.
    """
    delivered = pipeline.delivered
    renames = bool(delivered) and any(function.mixing is None for function in pipeline.batch_functions)
    return field not in pipeline.unmoved and (delivered is None or renames or field in delivered)


def has_files(source: OpenSource) -> bool:
    """Return True if a record has encoded bytes in a file that the source names."""
    return has_encoded(source) and not isinstance(source, PythonSource)


def has_encoded(source: OpenSource) -> bool:
    """Return True if a record has encoded bytes, in a file or from a dataset."""
    return any(isinstance(spec, Encoded) for spec in source.fields.values())


def sample_contents(
    pipeline: Description,
    source: OpenSource,
    kernel: NativeKernel | None,
    program: SampleProgram | None,
    measured: Mapping[str, ArraySpec | Listed] | None,
) -> Mapping[str, ArraySpec | Listed | None]:
    """Return the form of each field of a finished sample; None for a field that is measured when a loader
    starts.
    """
    collate = pipeline.collate
    if collate and pipeline.batch_functions:
        raise PlanError(
            "map_batch() can't follow batch(collate=…): it needs all fields before the batch is "
            "collated. Collate in the function of map_batch(), or leave map_batch() out"
        )
    contents: dict[str, ArraySpec | Listed | None]
    if any(function.collates for function in pipeline.batch_functions):
        return {}  # its samples go to a function
    if program is None:
        contents = {
            name: spec for name, spec in source.fields.items() if isinstance(spec, ArraySpec | Listed)
        }
        if kernel is not None:
            made = kernel.outputs
            others = {name: contents[name] for name in contents if name not in (*made, *kernel.reads)}
            contents = {**made, **others}
    elif program.fields is None:
        contents = {ALL: None} if measured is None else dict(measured)
    else:
        contents = dict(program.fields)
        if measured is not None:
            _check_declared(contents, measured, collate)
            contents = dict(measured)
    if ALL not in contents and (unknown := [name for name in collate if name not in contents]):
        raise PlanError(
            f"batch(collate=…): there is no field {unknown[0]!r}. The fields are {', '.join(contents)}"
        )
    if ALL not in contents:
        asked = [("check_finite", name) for name in pipeline.finite or ()]
        asked += [("check_labels", labels.field) for labels in pipeline.labels]
        asked += [("map(unmoved=…)", name) for name in pipeline.unmoved]
        for method, name in asked:
            if name not in contents:
                raise PlanError(f"{method}: there is no field {name!r}. The fields are {', '.join(contents)}")
    first = (
        pipeline.batch_functions[0].mixing if pipeline.batch_functions else None
    )  # the fields are the samples'
    if first is not None and ALL not in contents and (missing := first.missing(contents)):
        raise PlanError(missing)
    mixing = next((each.mixing for each in pipeline.batch_functions if each.mixing is not None), None)
    if mixing is not None:
        _check_mixing(mixing, pipeline, source, contents)
    if "index" in contents:
        raise PlanError(
            "a sample has a field 'index', and every batch gets a field of this name. Rename the sample's "
            "field"
        )
    return contents


def _check_mixing(
    mixing: Mixing,
    pipeline: Description,
    source: OpenSource,
    contents: Mapping[str, ArraySpec | Listed | None],
) -> None:
    """Raise ``PlanError`` if a batch has pictures beside the mixed images, or beside their view."""
    kinds = picture_kinds(pipeline, source)
    reference = next(iter(kinds))
    for field, kind in kinds.items():
        name = field_of_view(mixing.images[0], field, reference)
        spec = contents.get(name)
        fits = isinstance(spec, Listed) or (spec is not None and kind.bytes_of(spec) is not None)
        if fits and field != reference and name not in mixing.images:
            way = f"give it to image={(*mixing.images, name)!r}" if kind.is_image else "leave it out"
            raise PlanError(
                f"{type(mixing).__name__} mixes images and labels but not the field {name!r}, which would no longer "
                f"fit the image: {way}, or rename {name!r} if it isn't {kind.form}"
            )


def _check_declared(
    declared: Mapping[str, ArraySpec | Listed | None],
    measured: Mapping[str, ArraySpec | Listed],
    collate: Collection[str],
) -> None:
    for name in {*declared, *measured}.difference(collate):
        spec, got = declared.get(name), measured.get(name)
        if name not in declared or name not in measured or (spec is not None and spec != got):
            raise PlanError(
                f"the field {name!r} was declared as {declared.get(name, 'absent')}, but it is "
                f"{measured.get(name, 'absent')} in the first sample"
            )


def slot_layout(
    contents: Contents, rows: int, last_batch: LastBatch, instances: InstanceFields | None
) -> SlotLayout:
    """Return where each field is in a slot. Raises ``PlanError`` for a name that padding or instances use."""
    fields = {name: spec for name, spec in contents.items() if isinstance(spec, ArraySpec)}
    fields["index"] = ArraySpec((), np.dtype(np.int64))
    if last_batch is LastBatch.PAD:
        if "valid" in contents:
            raise PlanError(
                "a sample has a field 'valid', and padding adds a field of this name. Rename the "
                'sample\'s field, or use last_batch="drop"'
            )
        fields["valid"] = ArraySpec((), np.dtype(np.bool_))
    collated = [how for how in contents.values() if isinstance(how, Collation)]
    regions = {name: region for how in collated for name, region in how.regions.items()}
    kept: frozenset[str] = frozenset()
    if instances is not None:
        kept = frozenset(instances.names)
        if taken := [name for name in instances.names if name in fields or name in regions]:
            raise PlanError(
                f"a sample has a field {taken[0]!r}, and a batch with instances has one of this name"
            )
        fields, regions = {**fields, **instances.fields}, {**regions, **instances.regions}
    return SlotLayout(fields, rows, regions, kept=kept)


def bytes_apart(fields: Mapping[str, object], *, whole: bool) -> int:
    """Return the measured bytes of a sample's values outside slots: lists, and with ``whole`` also all
    arrays.
    """
    listed = sum(spec.nbytes for spec in fields.values() if isinstance(spec, Listed))
    return listed + (
        sum(spec.row_bytes for spec in fields.values() if isinstance(spec, ArraySpec)) if whole else 0
    )


def has_more_than_slots(pipeline: Description, contents: Contents) -> bool:
    """Return True if a batch has values outside its slot, as far as this is known."""
    known = (spec for spec in contents.values() if spec is not None)
    return bool(pipeline.batch_functions) or not all(isinstance(spec, ArraySpec) for spec in known)
