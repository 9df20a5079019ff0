"""Every ```python block of README.md and docs/ runs.

The blocks of one page run in order, in one namespace, in a folder that holds ``photos/``: 300 small JPEGs in
``photos/cat`` and ``photos/dog``, ``coco/`` with boxes for the cats, and ``yolo/`` with the same as label files. The
dogs are in ``imagenet/train-*``, TFRecord files as ImageNet's, and in ``mds/train``, MDS shards with columns ``x`` and
``y``. Two names exist beforehand: ``step``, which stands for a training step and takes anything, and ``__name__``,
which is ``"__main__"``. Code that can't run so is a ```text block.

The commands of ```console blocks run too, each once, on the first page that has it, in a folder that holds:

- ``photos/``, made by ``standpipe synth``, and ``my-photos/`` without class folders
- ``train.txt``, a list of the photos; ``widths.npy``, a number each; ``my_lengths.py`` with a function ``words``

Pages in ``APART`` run in a process of their own: one that has used JAX mustn't fork any more. ``tests/for_ray`` runs
those in ``ON_A_CLUSTER``.

Not run:

- make: it builds standpipe and runs these tests
- pip, git: they install or fetch what is being tested
"""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torchvision_cpu  # noqa: F401 (torchvision is importable only behind it)
from record_files import example, mds, tfrecord

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RECIPES = ROOT / "docs" / "howto"  # tests/docs/test_howto.py runs them
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = ("make", "pip", "git")
IMAGES = 8  # instead of how many a page makes
LIMIT_S = 60
APART = ("jax.md",)
ON_A_CLUSTER = ("ray.md",)
BEGIN = "__name__, step = '__main__', lambda *_batch: None\n"


def blocks(page: Path) -> list[str]:
    """The page's blocks of Python, each under as many empty lines as stand above it: errors name the page's line."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, made = np.random.default_rng(7), tmp_path_factory.mktemp("photos")
    for number in range(300):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
        path = made / ("cat", "dog")[number % 2] / f"{number:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        coarse.resize((96 + number % 7, 72 + number % 5)).save(path)
    return made


@pytest.fixture
def folder(photos: Path, tmp_path: Path) -> Path:
    shutil.copytree(photos, tmp_path / "photos")
    write_coco(tmp_path)
    write_yolo(tmp_path)
    write_shards(tmp_path)
    return tmp_path


def write_coco(folder: Path) -> None:
    """Write a COCO file of the cats, with a box each."""
    (folder / "coco").mkdir()
    (folder / "coco" / "images").symlink_to(folder / "photos" / "cat")
    images, annotations = [], []
    for number, path in enumerate(sorted((folder / "photos" / "cat").iterdir())):
        with Image.open(path) as photo:
            width, height = photo.size
        images.append({"id": number, "file_name": path.name, "width": width, "height": height})
        box = {"bbox": [8, 9, width - 20, height - 20], "area": (width - 20) * (height - 20)}
        shape = {"segmentation": [[8, 9, width - 12, 9, width - 12, height - 11, 8, height - 11]]}
        annotations.append(
            {"id": number, "image_id": number, "category_id": 17, "iscrowd": 0, **box, **shape}
        )
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 17, "name": "cat"}],
    }
    (folder / "coco" / "instances.json").write_text(json.dumps(content))


def write_yolo(folder: Path) -> None:
    """Write the YOLO family's label files of the cats, with a polygon each."""
    (folder / "yolo" / "images").mkdir(parents=True)
    (folder / "yolo" / "images" / "train").symlink_to(folder / "photos" / "cat")
    (folder / "yolo" / "labels" / "train").mkdir(parents=True)
    for path in (folder / "photos" / "cat").iterdir():
        labels = folder / "yolo" / "labels" / "train" / f"{path.stem}.txt"
        labels.write_text("0 0.1 0.1 0.9 0.1 0.9 0.9 0.1 0.9\n", encoding="utf-8")
    about = "path: .\ntrain: images/train\nnames: {0: cat}\n"
    (folder / "yolo" / "data.yaml").write_text(about, encoding="utf-8")


def write_shards(folder: Path) -> None:
    """Write the dogs as TFRecord files and as MDS shards."""
    (folder / "imagenet").mkdir()
    images = [path.read_bytes() for path in sorted((folder / "photos" / "dog").iterdir())]
    for number in range(2):
        records = [
            example({"image/encoded": image, "image/class/label": [1 + number]})
            for image in images[number::2]
        ]
        tfrecord(folder / "imagenet" / f"train-{number:05}-of-00002", records)
    samples = [{"x": image, "y": number % 2} for number, image in enumerate(images)]
    mds(folder / "mds" / "train", {"x": "jpeg", "y": "int"}, samples, per_shard=100)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if RECIPES not in page.parents and page.name not in ON_A_CLUSTER and blocks(page)
    ],
)
def test_the_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    if page.name in APART:
        run(page, folder)
        return
    namespace = {"__name__": "__main__", "step": lambda *_batch: None}
    for number, block in enumerate(blocks(page)):
        file = folder / f"{page.stem}-{number}.py"  # functions of filters and caches are known by their file
        file.write_text(block, encoding="utf-8")
        exec(compile(block, str(file), "exec", dont_inherit=True), namespace)


def run(page: Path, folder: Path) -> None:
    script = folder / "page.py"
    script.write_text(BEGIN + "".join(blocks(page)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=4 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def commands(page: Path) -> list[str]:
    """The page's commands, without the prompt and what is said about them."""
    text = "".join(CONSOLE.findall(page.read_text(encoding="utf-8")))
    lines = [line.removeprefix("$ ").partition(" #")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line.split()[0] not in NOT_RUN]


def quick(command: str) -> str:
    """The command with few images to make, and a short time to measure."""
    command = re.sub(r"--images \d+", f"--images {IMAGES}", command)
    return (
        f"{command} --seconds 0.1" if command.startswith(("standpipe bench", "standpipe doctor")) else command
    )


FIRST_ON = {command: page for page in reversed(PAGES) for command in commands(page)}
PAGES_WITH_COMMANDS = [page for page in PAGES if page in FIRST_ON.values()]


# Commands in one process: each would import standpipe anew.
IN_TURN = """
import shlex, sys
from standpipe.cli import main
for command in sys.argv[1:]:
    if code := main(shlex.split(command)[1:]):
        sys.exit(f"{command}: {code}")
"""


def shell(command: str, folder: Path) -> None:
    """Run a command line in ``folder``, where ``standpipe`` is the one under test."""
    script = f'set -eo pipefail; standpipe() {{ "{sys.executable}" -m standpipe "$@"; }}; {command}'
    in_folder(["bash", "-c", script], folder)


def in_folder(command: list[str], folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stderr}"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    shell(f"standpipe synth photos --images {IMAGES}", folder)
    (folder / "my-photos").mkdir()
    for path in folder.glob("photos/*/*.jpg"):
        shutil.copy(path, folder / "my-photos")
    paths = sorted(folder.glob("photos/*/*.jpg"))
    (folder / "train.txt").write_text("".join(f"{path}\t{path.parent.name}\n" for path in paths))
    (folder / "my_lengths.py").write_text("def words(path):\n    return len(path)\n")
    np.save(folder / "widths.npy", np.zeros(len(paths), np.int16))
    return folder


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_pages_commands_run(page: Path, demo: Path) -> None:
    on_page = [quick(command) for command, first_on in FIRST_ON.items() if first_on == page]
    for alone, together in groupby(
        on_page, lambda command: bool(re.match("(?!standpipe )|.*[|<>&;]", command))
    ):
        if not alone:
            in_folder([sys.executable, "-c", IN_TURN, *together], demo)
        else:
            for command in together:
                shell(command, demo)


def test_commands_are_found() -> None:
    assert {"bench", "explain", "show", "synth"} <= {command.split()[1] for command in commands(PAGES[0])}
