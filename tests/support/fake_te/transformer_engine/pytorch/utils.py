import functools


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
