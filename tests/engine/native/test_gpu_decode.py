"""``decode("gpu")`` and ``"hybrid"``: which rows go to the GPU's decoder, and what becomes of them.

nvImageCodec decodes on the CPU here: the same code but for the device, with libjpeg-turbo's pixels. Other decoders show
which rows came to them, or fail in ways that this one doesn't.
"""

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from jpegs import kinds, photo, saved, with_precision, with_size
from photos import encoded, picture
from reference import in_order, listed
from standpipe import _native
from standpipe.engine.native.gpu import GpuDecoding
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform import NvDecoder

PAINT = 77
PARTS = (
    "progressive",
    "separate",
    "CMYK",
    "YCCK",
    "RGB",
    "behind it",
)  # of the names of kinds that stay exact


class Painter:
    """Decodes every file to one colour, so that it shows which ones it was given."""

    def __init__(self, device: str) -> None:
        self.device = device

    def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
        for frame in frames:
            frame[...] = PAINT
        return [True] * len(encoded)


class Refuser(Painter):
    """Takes nothing."""

    def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
        return [False] * len(encoded)


def use(monkeypatch: pytest.MonkeyPatch, decoder: type) -> None:
    monkeypatch.setattr("standpipe.engine.native.gpu.NvDecoder", decoder)


def images(pipeline: sp.Pipeline, *, num_workers: int = 2) -> tuple[list[AnyArray], sp.Stats]:
    """An epoch's images in order of their records, and the counters after it."""
    with pipeline.loader(memory="256MiB", num_workers=num_workers, decode_device="cpu") as loader:
        rows = {}
        for batch in loader:
            rows |= dict(zip(batch["index"].tolist(), batch["image"].copy(), strict=True))
        return [rows[i] for i in sorted(rows)], loader.stats()


def painted(rows: Sequence[AnyArray]) -> list[bool]:
    return [bool((row == PAINT).all()) for row in rows]


def small(folder: Path, count: int) -> sp.FileList:
    return listed(folder, [encoded(picture(seed), quality=90) for seed in range(count)])


def test_every_kind_of_jpeg_has_the_exact_pixels_where_the_decoder_has(tmp_path: Path) -> None:
    """Whoever decodes: crop, flip and resampling are the same, and what no GPU takes goes to none."""
    files = kinds(61, 83)
    crop, flip = sp.RandomResizedCrop((24, 31)), sp.RandomHorizontalFlip()
    pipeline = in_order(listed(tmp_path, list(files.values()), times=3), crop, flip, sp.Normalize())
    expected, _ = images(pipeline)
    rows, stats = images(pipeline.decode("gpu"))
    plain = [name for name in files if not any(part in name for part in PARTS)]
    differing = {
        list(files)[i % len(files)] for i in range(len(rows)) if not np.array_equal(rows[i], expected[i])
    }
    assert not differing
    assert stats.gpu_rows >= 3 * len(plain) - 3


def test_which_decoder_takes_a_row_is_a_function_of_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Painter)
    source = small(tmp_path, 60)
    expected = list(_native.in_share(np.arange(60), 0.4))
    assert 10 < sum(expected) < 40
    for seed, rows, workers in ((1, 7, 1), (2, 30, 4)):
        described = (
            sp.Pipeline(source)
            .shuffle(seed=seed)
            .map(sp.RandomResizedCrop(16))
            .batch(rows, last_batch="partial")
        )
        assert painted(images(described.decode("hybrid", share=0.4), num_workers=workers)[0]) == expected


def test_only_files_that_any_decoder_takes_go_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Painter)
    rgb = photo(48, 64)
    files = {
        "baseline": saved(rgb),
        "grey": saved(photo(48, 64, channels=1)),
        "progressive": saved(rgb, progressive=True),
        "CMYK": saved(rgb, mode="CMYK"),
        "PNG": saved(rgb, "PNG"),
        "text behind it": saved(rgb) + b"text",
        "too large": saved(photo(500, 500)),  # for 16 MiB
        "the largest": saved(photo(349, 500)),
        "more bytes than pixels": saved(photo(8, 8))[:2]
        + b"\xff\xfe\x40\x00"
        + bytes(0x3FFE)
        + saved(photo(8, 8))[2:],
    }
    pipeline = in_order(listed(tmp_path, list(files.values())), sp.Resize((20, 20)))
    expected, _ = images(pipeline)
    rows, _ = images(pipeline.decode("gpu", gpu_memory="16MiB"))
    taken = {name for name, was in zip(files, painted(rows), strict=True) if was}
    assert taken == {"baseline", "grey", "text behind it", "the largest"}
    for name, row, exact in zip(files, rows, expected, strict=True):
        assert name in taken or np.array_equal(row, exact), name


def damaged() -> dict[str, bytes]:
    whole = saved(photo(48, 64))
    return {
        "empty": b"",
        "no image": b"hello, this is text",
        "cut": whole[: len(whole) * 9 // 10],
        "cut in the header": whole[:100],
        "too many pixels": with_size(whole, 60000, 60000),
        "12 bits": with_precision(whole, 12),
        "no data": whole[: whole.index(b"\xff\xda")] + b"\xff\xd9",
    }


@pytest.mark.parametrize("decoder", [NvDecoder, Refuser])
@pytest.mark.parametrize("name", damaged())
def test_a_bad_file_has_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, decoder: type
) -> None:
    use(monkeypatch, decoder)
    pipeline = in_order(listed(tmp_path, [damaged()[name]]), sp.Resize((20, 20)))
    errors = []
    for each in (pipeline, pipeline.decode("gpu")):
        with pytest.raises(sp.SampleError) as caught:
            images(each)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("decoder", [NvDecoder, Refuser])
def test_bad_files_are_replaced_by_the_same_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoder: type
) -> None:
    use(monkeypatch, decoder)
    files = [*damaged().values(), *(encoded(picture(seed), quality=90) for seed in range(40))]
    described = sp.Pipeline(listed(tmp_path, files)).shuffle(seed=4).map(sp.RandomResizedCrop(16)).batch(12)
    described = described.on_error(sp.Replace(at_most=20))
    taken = []
    for each in (described, described.decode("hybrid", share=0.7)):
        with each.loader(memory="256MiB", num_workers=3, decode_device="cpu") as loader:
            batches = [{name: values.copy() for name, values in batch.items()} for batch in loader]
            taken.append((batches, [(bad.index, bad.replacement, bad.reason) for bad in loader.bad_samples]))
    (exact, bad), (ours, our_bad) = taken
    assert bad == our_bad
    assert len(bad) > 3
    for one, other in zip(exact, ours, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_what_the_decoder_refuses_is_decoded_exactly_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use(monkeypatch, Refuser)
    pipeline = in_order(small(tmp_path, 10), sp.RandomResizedCrop(16))
    rows, stats = images(pipeline.decode("gpu"))
    assert np.array_equal(rows, images(pipeline)[0])
    assert sum("refused a JPEG" in record.getMessage() for record in caplog.records) == 1
    assert stats.gpu_refused >= 10  # and of the next epoch, which is filled ahead


def test_a_decoder_that_fails_is_an_error_of_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Painter):
        def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
            raise RuntimeError("an illegal memory access was encountered")

    use(monkeypatch, Broken)
    with pytest.raises(sp.DecodeError, match="GPU's decoder failed: an illegal memory access") as caught:
        images(in_order(small(tmp_path, 3), sp.RandomResizedCrop(16)).decode("gpu"))
    assert caught.value.path is not None


def test_a_decoder_that_hangs_is_named_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, made = threading.Event(), []

    class Stuck(Painter):
        def __init__(self, device: str) -> None:
            made.append(self)

        def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
            if self is made[0]:
                hangs.wait(60)
            return super().decode(encoded, frames)

    use(monkeypatch, Stuck)
    pipeline = in_order(small(tmp_path, 12), sp.RandomResizedCrop(16)).decode("gpu")
    settings = {"memory": "256MiB", "slow_sample_s": 0.1, "stall_timeout_s": 2.0}
    with pipeline.on_error(sp.Replace(at_most=4)).loader(**settings) as loader:
        (batch,) = loader
        assert painted(batch["image"]) == [True] * 12
        assert [bad.place for bad in loader.bad_samples] == ["stalled"]
        assert loader.stats().stalled == 1
        hangs.set()
    assert len(made) == 2


def test_no_image_is_above_the_cap_and_no_batch_above_the_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder's memory follows from the largest image that it gets, the host's from those that come together."""
    pixels: list[list[int]] = []

    class Counter(Painter):
        def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
            pixels.append([frame.shape[0] * frame.shape[1] for frame in frames])
            return super().decode(encoded, frames)

    use(monkeypatch, Counter)
    sides = [40, 400, 417, 418, 419, 700] * 9
    cache = {side: saved(photo(side, side), quality=60) for side in set(sides)}
    pipeline = in_order(listed(tmp_path, [cache[side] for side in sides]), sp.Resize((8, 8)))
    pipeline = pipeline.decode("gpu", gpu_memory="16MiB")
    assert pipeline.gpu is not None
    images(pipeline)
    assert {row for batch in pixels for row in batch} == {40 * 40, 400 * 400, 417 * 417, 418 * 418}
    assert pipeline.gpu.most_pixels == (16 << 20) // (4 * 24) < 419 * 419
    assert 3 * max(map(sum, pixels)) <= pipeline.gpu.frame_bytes == 16 << 20


def test_epochs_that_are_left_early_leave_nothing_behind(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(small(tmp_path, 40)).shuffle(seed=2).map(sp.RandomResizedCrop(16)).batch(4)
    with pipeline.decode("gpu").loader(memory="256MiB", decode_device="cpu") as loader:
        for _ in range(30):
            next(iter(loader))
        assert sum(thread.name.startswith("standpipe-gpu") for thread in threading.enumerate()) == 1
    assert not any(thread.name.startswith("standpipe-gpu") for thread in threading.enumerate())


def test_an_epoch_goes_on_after_a_resume_with_other_workers(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(small(tmp_path, 40)).shuffle(seed=2).map(sp.RandomResizedCrop(16)).batch(8)
    pipeline = pipeline.decode("hybrid", share=0.5)
    with pipeline.loader(memory="256MiB", num_workers=1, decode_device="cpu") as loader:
        whole = [batch["image"].copy() for batch in loader]
    with pipeline.loader(memory="256MiB", num_workers=3, decode_device="cpu") as loader:
        for _, _ in zip(range(2), loader, strict=False):
            pass
        state = loader.state_dict()
    with pipeline.loader(memory="256MiB", num_workers=2, decode_device="cpu") as loader:
        loader.load_state_dict(state)
        rest = [batch["image"].copy() for batch in loader]
    assert np.array_equal(whole[2:], rest)


def test_a_state_of_another_version_of_the_decoder_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = in_order(small(tmp_path, 2), sp.RandomResizedCrop(16))
    with pipeline.decode("gpu").loader(memory="128MiB") as loader:
        state = loader.state_dict()
        loader.load_state_dict(state)
        monkeypatch.setattr("standpipe.plan.plan.decoder_of_gpu", lambda: "nvImageCodec 99")
        with pytest.warns(
            UserWarning, match=r"nvImageCodec 0\.\d.*, this is .*nvImageCodec 99: pixels may differ"
        ):
            loader.load_state_dict(state)
    with pipeline.loader(memory="128MiB") as loader:
        assert "nvImageCodec" not in str(loader.state_dict())


def test_a_frame_of_another_size_is_left_alone() -> None:
    """Rows of another image would stay in it."""
    frames = [
        np.full((24, 32, 3), 9, np.uint8),
        np.full((48, 64, 3), 9, np.uint8),
        np.zeros((48, 64, 3), np.uint8),
    ]
    data = np.frombuffer(saved(photo(48, 64)), np.uint8)
    decoded = NvDecoder("cpu").decode([data, data[:50], data], frames)
    assert decoded == [False, False, True]
    assert (frames[0] == 9).all()
    assert np.array_equal(frames[2], np.asarray(Image.open(io.BytesIO(data.tobytes()))))


def test_the_recipe_says_what_the_gpu_decodes(tmp_path: Path) -> None:
    pipeline = in_order(small(tmp_path, 2), sp.RandomResizedCrop(16))
    described = [
        pipeline,
        pipeline.decode("gpu"),
        pipeline.decode("gpu", gpu_memory="1GiB"),
        pipeline.decode("hybrid", share=0.25),
        pipeline.decode("hybrid", share=0.5),
    ]
    assert len({each.plan().digest for each in described}) == len(described)
    assert pipeline.decode("gpu").decode("exact").plan().digest == pipeline.plan().digest
    text = " ".join(described[3].plan().explain().split())
    assert "baseline JPEGs of 0.25 of the records up to 2,796,202 pixels on the GPU, else exact" in text
    assert "on cuda, in at most 256.0MiB of the GPU's memory" in text


def test_decoded_frames_are_part_of_the_forecast_and_the_ledger(tmp_path: Path) -> None:
    pipeline = in_order(small(tmp_path, 8), sp.RandomResizedCrop(16))
    without, plan = (each.plan(memory="128MiB", num_workers=1) for each in (pipeline, pipeline.decode("gpu")))
    assert plan.forecast.frames == 2 * (16 << 20)
    assert plan.forecast.allocated == without.forecast.allocated + plan.forecast.frames
    with pytest.raises(sp.BudgetError, match=r"32\.0MiB of images from the GPU") as caught:
        pipeline.decode("gpu").plan(memory="40MiB", num_workers=1)
    assert pipeline.decode("gpu").plan(memory=caught.value.smallest_bytes, num_workers=1)
    with pipeline.decode("gpu").loader(memory="128MiB", decode_device="cpu") as loader:
        list(loader)
        ledger = loader.memory()
    assert 0 < ledger["frames"].now <= ledger["frames"].most == plan.forecast.frames
    assert ledger.peak <= ledger.limit


def test_what_cant_be_is_a_plan_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = in_order(small(tmp_path, 2), sp.RandomResizedCrop(16))
    for wrong, words in (
        ({"mode": "hybrid"}, "needs the fraction of the records"),
        ({"mode": "hybrid", "share": 0}, "above 0 and at most 1"),
        ({"mode": "hybrid", "share": True}, "above 0 and at most 1"),
        ({"mode": "gpu", "share": 0.5}, "applies to decode\\('hybrid'\\) only"),
        ({"mode": "gpu", "gpu_memory": "1MiB"}, "at least 16MiB"),
        ({"mode": "hardware"}, "'exact', 'fast', 'gpu' or 'hybrid'"),
    ):
        with pytest.raises(sp.PlanError, match=words):
            pipeline.decode(**wrong)
    for described, words in (
        (pipeline.map(lambda sample: sample), "a Python transform"),
        (pipeline.map_batch(lambda batch: batch), r"map_batch\(\)"),
    ):
        with pytest.raises(sp.PlanError, match=words):
            described.decode("gpu").plan()
    with pytest.raises(sp.PlanError, match="must be 'cpu', 'cuda', or 'cuda:' and a number"):
        pipeline.decode("gpu").plan(decode_device="rocm")
    with pytest.raises(sp.PlanError, match="executor='inline'"):
        pipeline.decode("gpu").plan(executor="inline")
    arrays = in_order(sp.Arrays(image=np.zeros((2, 16, 16, 3), np.uint8)), sp.RandomResizedCrop(16))
    with pytest.raises(sp.PlanError, match="work for image files only"):
        arrays.decode("gpu").plan()
    monkeypatch.setattr("standpipe.plan.fields.has_nvimagecodec", lambda: False)
    with pytest.raises(sp.PlanError, match=r"pip install 'nvidia-nvimgcodec-cu12\[nvjpeg\]'"):
        pipeline.decode("gpu").plan()


def test_a_decoder_that_decodes_nothing_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NvDecoder, "decode", lambda self, encoded, frames: [False] * len(encoded))
    with pytest.raises(sp.PlanError, match=r"decodes nothing\. It needs nvJPEG"):
        NvDecoder("cpu")


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_without_a_gpu_the_start_says_so(tmp_path: Path) -> None:
    pipeline = in_order(small(tmp_path, 2), sp.RandomResizedCrop(16)).decode("gpu")
    with pytest.raises(sp.PlanError, match="decode_device='cpu' to try"), pipeline.loader() as loader:
        next(iter(loader))


def test_a_decoder_that_takes_anothers_place_is_on_the_same_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts it is a thread with a current device of its own."""
    main, devices = threading.get_ident(), []
    monkeypatch.setattr(
        "standpipe.transform.decoders.gpu._number", lambda _: int(threading.get_ident() == main)
    )
    monkeypatch.setattr("standpipe.engine.native.gpu.NvDecoder", devices.append)
    monkeypatch.setattr(GpuDecoding, "start", lambda _: None)
    plan = in_order(small(tmp_path, 2), sp.RandomResizedCrop(16)).decode("gpu").plan()
    decoding = GpuDecoding(plan, cast("Any", None), lambda _: None)
    other = threading.Thread(target=decoding.start_again)
    other.start()
    other.join()
    assert devices == ["cuda:1", "cuda:1"]


def test_masks_are_those_of_exact_decoding(tmp_path: Path) -> None:
    """The GPU decodes images, and Pillow their masks, with the same random numbers as ever."""
    lists = {kind: "".join(f"{seed}.{kind}\n" for seed in range(12)) for kind in ("jpg", "png")}
    for kind, text in lists.items():
        (tmp_path / f"{kind}.txt").write_text(text)
    for seed in range(12):
        image = picture(seed)
        (tmp_path / f"{seed}.jpg").write_bytes(encoded(image))
        (tmp_path / f"{seed}.png").write_bytes(encoded(image[..., 0], "PNG"))
    source = sp.FileList(tmp_path / "jpg.txt", mask=tmp_path / "png.txt")
    pipeline = in_order(source, sp.RandomResizedCrop(24), sp.RandomRotation(30))
    runs = []
    for each in (pipeline, pipeline.decode("gpu")):
        with each.loader(memory="256MiB", num_workers=2, decode_device="cpu") as loader:
            runs.append([(batch["image"].copy(), batch["mask"].copy()) for batch in loader])
            rows = loader.stats().gpu_rows
    for (image, mask), (other, other_mask) in zip(*runs, strict=True):
        assert np.array_equal(image, other)
        assert np.array_equal(mask, other_mask)
    assert rows >= 12
