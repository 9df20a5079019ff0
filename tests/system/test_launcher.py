"""Which data rank a process is: from its launcher, its caller or a mesh."""

from __future__ import annotations

import pytest

import standpipe as sp
from photos import numbers
from standpipe.system.launcher import LAUNCHERS, data_rank, of_launcher

PIPELINE = sp.Pipeline(numbers(64)).batch(2)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, rank, world_size in LAUNCHERS:
        monkeypatch.delenv(rank, raising=False)
        monkeypatch.delenv(world_size, raising=False)


@pytest.mark.parametrize(("_", "rank", "world_size"), LAUNCHERS)
def test_every_launcher_is_asked(_: str, rank: str, world_size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rank, "3")
    monkeypatch.setenv(world_size, "8")
    plan = PIPELINE.shard().plan()
    assert (plan.steps.rank, plan.steps.world_size) == (3, 8)
    assert plan.explain().startswith("standpipe plan, rank 3 of 8 data ranks")


def test_no_launcher_is_one_process() -> None:
    assert PIPELINE.shard() == PIPELINE
    assert of_launcher({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) == (0, 1)  # a batch script, not srun


def test_the_innermost_launcher_counts() -> None:
    both = {"RANK": "9", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    assert of_launcher(both) == (9, 16)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"RANK": "1"}, "WORLD_SIZE isn't set"),
        ({"WORLD_SIZE": "1"}, "RANK isn't set"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "aren't a valid rank"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "aren't a valid rank"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "aren't a valid rank"),
    ],
)
def test_environments_that_make_no_sense(environment: dict[str, str], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        of_launcher(environment)


def test_what_the_caller_says_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    plan = PIPELINE.shard(1, 2).plan()
    assert (plan.steps.rank, plan.steps.world_size) == (1, 2)


def test_replicas_get_the_same_rows() -> None:
    def rows(rank: int) -> list[int]:
        with PIPELINE.shard(rank, 8, replicate=4).loader(memory="64MiB", num_workers=1) as loader:
            return [int(i) for batch in loader for i in batch["index"]]

    assert rows(0) == rows(3) != rows(4) == rows(7)
    assert sorted(rows(0) + rows(4)) == list(range(64))


class Mesh:
    """As torch's DeviceMesh answers, for process ``rank`` of a (2, 3, 4) mesh."""

    mesh_dim_names = ("dp", "pp", "tp")

    def __init__(self, rank: int) -> None:
        self._at = (rank // 12, rank // 4 % 3, rank % 4)

    def size(self, mesh_dim: int | None = None) -> int:
        return 24 if mesh_dim is None else (2, 3, 4)[mesh_dim]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        assert isinstance(mesh_dim, str)
        return self._at[self.mesh_dim_names.index(mesh_dim)]


def test_a_mesh_says_which_rows() -> None:
    def ranks(dims: tuple[str, ...]) -> list[tuple[int, int]]:
        of = [data_rank(None, None, replicate=1, mesh=Mesh(rank), dims=dims) for rank in range(24)]
        return sorted(set(of))

    assert ranks(("dp",)) == [(0, 2), (1, 2)]
    assert ranks(("dp", "tp")) == [(rank, 8) for rank in range(8)]
    assert data_rank(None, None, replicate=1, mesh=Mesh(13), dims=("dp",)) == (1, 2)
    assert data_rank(None, None, replicate=1, mesh=Mesh(13), dims=("dp", "tp")) == (5, 8)


def test_torchs_own_mesh() -> None:
    torch = pytest.importorskip("torch")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
        plan = PIPELINE.shard(mesh=mesh).plan()
        assert (plan.steps.rank, plan.steps.world_size) == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"rank": 1}, "give both, or neither"),
        ({"world_size": 2}, "give both, or neither"),
        ({"rank": 0, "world_size": 8, "replicate": 3}, "the world size, 8, must be a multiple"),
        ({"rank": 0, "world_size": 8, "replicate": 0}, "at least 1"),
        ({"rank": 0, "world_size": 8, "replicate": "2"}, "at least 1"),
        ({"mesh": Mesh(0), "rank": 0, "world_size": 2}, "leave out rank"),
        ({"mesh": Mesh(0), "dims": ("data",)}, "'dp', 'pp', 'tp'"),
        ({"mesh": Mesh(0), "dims": "dp"}, "'dp', 'pp', 'tp'"),
        ({"mesh": Mesh(0), "dims": ("dp", "dp")}, "'dp', 'pp', 'tp'"),
        ({"rank": 2, "world_size": 2}, "rank must be from 0"),
    ],
)
def test_what_is_no_rank(how: dict, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        PIPELINE.shard(**how).plan()
