"""Out of memory and a failed machine are told from the product's own errors."""

from __future__ import annotations

import pytest

from harness.judge.outcome import poisons_worker, verdict_of_error
from harness.types import Verdict
from tests.support.judging import error


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB", Verdict.OOM),
        ("MemoryError", "", Verdict.OOM),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes", Verdict.OOM),
        ("RuntimeError", "CUDA error: GPU is lost", Verdict.INFRA),
        ("OSError", "[Errno 28] No space left on device", Verdict.INFRA),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", None),
        ("AcceleratorError", "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`", None),
        ("AcceleratorError", "CUDA error: out of memory", Verdict.OOM),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Verdict.OOM),
        (
            "RuntimeError",
            "/x/cublaslt_gemm.cu:1 in function f: cuBLAS Error: the resource allocation failed",
            Verdict.OOM,
        ),
        ("AcceleratorError", "CUDA error: uncorrectable ECC error encountered", Verdict.INFRA),
        ("AcceleratorError", "CUDA error: uncorrectable NVLink error detected during the execution", Verdict.INFRA),
        ("AcceleratorError", "CUDA error: CUDA-capable device(s) is/are busy or unavailable", Verdict.INFRA),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`", None),
        ("ValueError", "in_features is 17, needs a multiple of 16", None),
    ],
)
def test_verdict_of_error(kind: str, message: str, expected: Verdict | None) -> None:
    assert verdict_of_error(error("run", kind, message)) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA error: device-side assert triggered", True),
        ("CUDA error: unspecified launch failure", True),
        ("CUDA error: misaligned address", True),
        ("CUDA error: an illegal instruction was encountered", True),
        ("CUDA error: operation not supported on global/shared address space", True),
        ("CUDA error: the launch timed out and was terminated", True),
        ("CUDA error: uncorrectable ECC error encountered", True),
        ("CUDA error: uncorrectable NVLink error detected during the execution", True),
        ("Triton Error [CUDA]: an illegal memory access was encountered", True),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasLtMatmul( ltHandle, ...)`", True),
        ("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasGemmEx( handle, ...)`", True),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", True),
        ("/x/cublaslt_gemm.cu:1 in function f: cuBLAS Error: the function failed to launch on the GPU", True),
        ("/x/util.cu:9 in function f: CUDA Error: device-side assert triggered", True),
        ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`", False),
        ("CUDA error: invalid configuration argument", False),
        ("CUDA error: no kernel image is available for execution on the device", False),
        ("CUDA out of memory", False),
        ("shapes differ", False),
    ],
)
def test_poisons_worker(message: str, expected: bool) -> None:
    assert poisons_worker(error("run", "RuntimeError", message)) is expected
