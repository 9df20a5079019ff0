"""Does a GPU wait for standpipe, and what of its memory does the way there take?

A ResNet trains in bfloat16 (float16 where the GPU has none), channels_last, at 224. Its ceiling is the same step on
random data that lies on the GPU; the host's limit is the loader alone, into host memory. standpipe is held against
the lower of the two. Beside it run torch's DataLoader with torchvision, and DALI's GPU pipeline where it is
installed. Every run has a process of its own. Memory of the input path is what a run had on the GPU at most, less
what the ceiling had beside its one batch.

``--static-buffers`` has every batch in one place. ``--largest --model resnet50`` finds the largest batch that fits.
``--device cpu --model tiny`` tries the script where there is no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from _measure import MIB, Figure, column, in_turn, last_json, parser, progress, ratio, report
from beside_torch import MEAN, STD, torchvision_images

from standpipe.system.machine import cpu_count

WARM_UP = 10  # batches
LEAST_BATCH, MOST_BATCH = 16, 4096  # of those that are tried
REPEATS = 50  # of a small folder's photos in an epoch, each with its own crop


def main() -> None:
    args = arguments()
    if args.only is not None:
        print(json.dumps(measured(args)))
        return
    passed = [word for word in sys.argv[1:] if word != "--json"]

    def run(name: str) -> Callable[[], dict[str, Any]]:
        return lambda: last_json([sys.executable, __file__, *passed, "--only", name])

    names = ["ceiling", "host", "standpipe"]
    names += ["torch"] if torchvision_images(args.path) else []
    names += (
        ["dali"] if importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali") else []
    )
    if args.largest:
        report_largest(args, passed, [name for name in names if name != "host"])
        return
    results = in_turn(args.rounds, {name: run(name) for name in names})
    rates = {name: column(runs, "images_per_s") for name, runs in results.items()}
    limits = [min(pair) for pair in zip(rates["ceiling"], rates["host"], strict=True)]
    bare = [run["gpu_bytes"] - run["planned_bytes"] for run in results["ceiling"]]
    rows = [
        [
            name,
            Figure(rates[name]),
            ratio(rates[name], limits),
            f"{(max(column(runs, 'gpu_bytes')) - max(bare)) / MIB:.0f}",
            Figure(column(runs, "wait_share"), ".3f"),
        ]
        for name, runs in results.items()
    ]
    ceiling, host = Figure(rates["ceiling"]).median, Figure(rates["host"]).median
    planned = results["standpipe"][0]["planned_bytes"] / MIB
    report(
        args,
        ["", "images/s", "÷ the lower limit", "GPU MiB of the input path", "waits"],
        rows,
        f"the lower limit is the {'host' if host < ceiling else 'GPU'}'s; {results['ceiling'][0]['device']}",
        f"standpipe's plan: {planned:.0f} MiB with two batches held; allowed: that and 64 MiB",
        packages=("torch",),
    )


def report_largest(args: argparse.Namespace, passed: list[str], names: list[str]) -> None:
    """The largest batch with which two steps fit the GPU, by halving."""
    rows = []
    for name in names:
        low, high = 0, MOST_BATCH
        while high - low > LEAST_BATCH:
            middle = (low + high) // 2 // LEAST_BATCH * LEAST_BATCH
            progress(f"{name}: a batch of {middle}")
            command = [
                sys.executable,
                __file__,
                *passed,
                "--only",
                name,
                "--batch",
                str(middle),
                "--batches",
                "2",
            ]
            fits = subprocess.run(command, capture_output=True, check=False).returncode == 0
            low, high = (middle, high) if fits else (low, middle)
        rows.append([name, low])
    progress("")
    note = f"in steps of {LEAST_BATCH}; whatever ends a run counts as too large"
    report(args, ["", f"largest batch of a {args.model}"], rows, note, packages=("torch",))


def arguments() -> argparse.Namespace:
    made = parser(__doc__, rounds=3)
    made.add_argument("--device", default="cuda", help="default: cuda")
    made.add_argument("--batch", type=int, default=256, metavar="N", help="images (default: 256)")
    made.add_argument("--batches", type=int, default=100, metavar="N", help="that are timed (default: 100)")
    made.add_argument("--size", type=int, default=224, metavar="PX", help="of an image (default: 224)")
    made.add_argument(
        "--model", default="resnet18", help="torchvision's, or tiny for one of two layers (default: resnet18)"
    )
    made.add_argument("--workers", type=int, default=None, metavar="N", help="default: one per CPU")
    made.add_argument("--static-buffers", action="store_true", help="every batch in one place")
    made.add_argument("--largest", action="store_true", help="find the largest batch that fits, instead")
    made.add_argument("--only", help=argparse.SUPPRESS)
    return made.parse_args()


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Rate, share of waiting and GPU memory of one way to feed the step."""
    import torch

    cuda = args.device.startswith("cuda")
    half = torch.bfloat16 if not cuda or torch.cuda.is_bf16_supported() else torch.float16
    planned, batches = SOURCES[args.only](args, half)
    step: Callable[..., None] = (lambda *_batch: None) if args.only == "host" else training_step(args, half)
    for _ in range(WARM_UP):
        step(*next(batches))
    synchronize(args.device)
    waited, begin = 0.0, time.perf_counter()
    for _ in range(args.batches):
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        step(*batch)
        del batch
    synchronize(args.device)
    seconds = time.perf_counter() - begin
    return {
        "images_per_s": args.batch * args.batches / seconds,
        "wait_share": waited / seconds,
        "gpu_bytes": gpu_peak(args.only) if cuda else 0,
        "planned_bytes": planned,
        "device": torch.cuda.get_device_name() if cuda else "CPU",
    }


def synchronize(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()


def gpu_peak(name: str) -> int:
    """Bytes that torch had at most; for DALI, which allocates by itself, what all had."""
    import torch

    peak: int = torch.cuda.max_memory_allocated()
    if name == "dali":
        free, total = torch.cuda.mem_get_info()
        peak += total - free - torch.cuda.memory_reserved()
    return peak


def training_step(args: argparse.Namespace, half: Any) -> Callable[..., None]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    model: Any
    if args.model == "tiny":
        model = nn.Sequential(
            nn.Conv2d(3, 8, 7, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1000)
        )
    else:
        import torchvision

        model = torchvision.models.get_model(args.model, num_classes=1000)
    model = model.to(args.device, half, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(images: Any, labels: Any) -> None:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


Batches = tuple[int, Iterator[tuple[Any, Any]]]  # with the bytes of GPU memory that were planned


def random_data(args: argparse.Namespace, half: Any) -> Batches:
    """One batch on the GPU, again and again."""
    import torch

    images = torch.randn(args.batch, 3, args.size, args.size, device=args.device, dtype=half)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (args.batch,), device=args.device)

    def batches() -> Iterator[tuple[Any, Any]]:
        while True:
            yield images, labels

    return images.nbytes + labels.nbytes, batches()


def standpipes(args: argparse.Namespace, half: Any, device: str | None = None) -> Batches:
    import torch

    import standpipe as sp
    import standpipe.torch

    pipeline = (
        sp.Pipeline(sp.ImageFolder(args.path))
        .shuffle(seed=7)
        .repeat_each(REPEATS)
        .map(sp.RandomResizedCrop(args.size), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(args.batch)
    )
    loader = standpipe.torch.loader(
        pipeline,
        device=device or args.device,
        dtype=half,
        memory_format=torch.channels_last,
        static_buffers=args.static_buffers,
        num_workers=args.workers or "auto",
    )
    plan = loader.plan
    planned = 0
    if hasattr(plan.device, "memory"):
        coming, held = plan.device.memory(plan.batch.layout.in_slot, plan.samples.finish)
        planned = coming + 2 * held

    def batches() -> Iterator[tuple[Any, Any]]:
        while True:
            yield from loader

    return planned, batches()


def hosts(args: argparse.Namespace, half: Any) -> Batches:
    """Yield batches that the host makes in its own memory, as bytes, which is what is copied."""
    return standpipes(args, half, device="cpu")


def torchs(args: argparse.Namespace, half: Any) -> Batches:
    import torch

    made = torchvision_images(args.path)
    assert made is not None
    images = made[0]
    workers = args.workers or cpu_count()
    many = torch.utils.data.RandomSampler(images, replacement=True, num_samples=args.batch * 10_000)
    loader = torch.utils.data.DataLoader(
        images, args.batch, sampler=many, num_workers=workers, pin_memory=args.device != "cpu"
    )

    def batches() -> Iterator[tuple[Any, Any]]:
        for image, label in loader:
            image = image.to(args.device, half, non_blocking=True, memory_format=torch.channels_last)
            yield image, label.to(args.device, non_blocking=True)

    return 0, batches()


def dalis(args: argparse.Namespace, half: Any) -> Batches:
    """DALI's usual GPU pipeline: ``mixed`` decoding, crop, resize and normalisation on the GPU."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=args.batch, num_threads=args.workers or 4, device_id=0)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        encoded, labels = fn.readers.file(file_root=args.path, random_shuffle=True, name="reader")
        images = fn.decoders.image_random_crop(encoded, device="mixed", output_type=types.RGB)
        images = fn.resize(images, resize_x=args.size, resize_y=args.size)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT16,
            output_layout="HWC",
            mean=[255 * each for each in MEAN],
            std=[255 * each for each in STD],
            mirror=fn.random.coin_flip(),
        )
        return images, labels.gpu()

    built = pipeline()
    built.build()

    def batches() -> Iterator[tuple[Any, Any]]:
        iterator = DALIGenericIterator([built], ["image", "label"], reader_name="reader", auto_reset=True)
        while True:
            for (batch,) in iterator:
                yield batch["image"].to(half).permute(0, 3, 1, 2), batch["label"].flatten().long()

    return 0, batches()


SOURCES: dict[str, Callable[[argparse.Namespace, Any], Batches]] = {
    "ceiling": random_data,
    "host": hosts,
    "standpipe": standpipes,
    "torch": torchs,
    "dali": dalis,
}

if __name__ == "__main__":
    main()
