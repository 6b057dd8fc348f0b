import functools
from typing import Any


def get_device_capability() -> tuple[int, int]:
    return (9, 0)


@functools.cache
def _get_device_compute_capability() -> tuple[int, int]:
    return get_device_capability()


def get_device_compute_capability() -> tuple[int, int]:
    return _get_device_compute_capability()


@functools.cache
def is_non_tn_fp8_gemm_supported() -> bool:
    return get_device_compute_capability() >= (10, 0)


@functools.cache
def knows_nothing_of_devices() -> list[int]:
    return []


def assert_dim_for_fp8_exec(*tensors: Any) -> None:
    for tensor in tensors:
        if tensor.shape[0] % 8 or tensor.shape[1] % 16:
            raise ValueError(f"must be divisible by 8 and 16, but got {list(tensor.shape)}")
