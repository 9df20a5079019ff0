"""Kernels in Triton: what they compute, in its interpreter, and that they compile for GPUs, of which none is needed."""

from __future__ import annotations

from programs import run

INTERPRETED = {"TRITON_INTERPRET": "1"}


def test_bytes_become_numbers() -> None:
    """Sizes that fill no block, every dtype, every order of memory."""
    done = run(
        """
        import torch
        from standpipe.torch.kernels import finish

        table = torch.from_numpy(sp.Normalize().table())
        for shape in ((3, 17, 13, 3), (1, 1, 1, 3), (2, 32, 16, 3)):
            images = torch.randint(0, 256, shape, dtype=torch.uint8)
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                expected = torch.stack([table.to(dtype)[c][images[..., c].long()] for c in range(3)], -1)
                for out in (
                    torch.empty_like(expected),
                    torch.empty_like(expected).permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),
                ):
                    finish(images, table.to(dtype).reshape(-1), out)
                    assert torch.equal(out, expected), (shape, dtype)
        print("same")
        """,
        environment=INTERPRETED,
    )
    assert done.stdout == "same\n", done.stderr


def test_they_compile_for_gpus() -> None:
    done = run(
        """
        import warnings
        warnings.simplefilter("ignore")  # Triton's own
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from standpipe.torch import kernels

        names = kernels._finish.arg_names
        for dtype in ("fp32", "fp16", "bf16"):
            constants = {"CHANNELS": 3, "BLOCK": kernels.PIXELS}
            types = {"images": "*u8", "table": "*" + dtype, "out": "*" + dtype}
            types |= dict.fromkeys(constants, "constexpr")
            source = ASTSource(
                kernels._finish,
                {name: types.get(name, "i32") for name in names},
                constexprs=constants,
            )
            for capability in (80, 90):
                made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
                assert made.asm["cubin"]
        print("compiled")
        """
    )
    assert done.stdout == "compiled\n", done.stderr
