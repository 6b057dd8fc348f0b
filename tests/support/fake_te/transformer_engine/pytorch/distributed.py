_IN_ACTIVATION_RECOMPUTE_REGION = False
_ACTIVATION_RECOMPUTE_PHASE = False


class activation_recompute_forward:
    _is_first_fp8_module: list[bool] = []  # noqa: RUF012
