"""The functional linear. Its products are exact up to the rounding of the result."""

from typing import Any

import torch

from transformer_engine.pytorch.tensors import Float8BlockwiseQTensorStorage, Float8TensorStorage


def general_gemm(
    A: Any,
    B: Any,
    out_dtype: torch.dtype,
    layout: str = "TN",
    use_split_accumulator: bool = False,
) -> tuple[torch.Tensor, None, None]:
    """TN: B @ A.T."""
    b = _values(B, "columnwise" if layout[1] == "T" else "rowwise")
    a = _values(A, "rowwise" if layout[0] == "T" else "columnwise")
    return (b @ a.t()).to(out_dtype), None, None


def _values(tensor: Any, usage: str) -> torch.Tensor:
    if isinstance(tensor, (Float8TensorStorage, Float8BlockwiseQTensorStorage)):
        return tensor.values(usage)
    return tensor.double() if usage == "rowwise" else tensor.double().t()


class BasicLinear:
    @staticmethod
    def _functional_forward(
        *,
        input: Any,
        weight: Any,
        dtype: Any,
        with_quantized_compute: bool,
        input_quantizer: Any,
        weight_quantizer: Any,
    ) -> tuple[torch.Tensor, Any, Any]:
        for quantizer in (input_quantizer, weight_quantizer):
            quantizer.set_usage(rowwise=True, columnwise=True)
        x, w = input_quantizer(input), weight_quantizer(weight)
        y, *_ = general_gemm(w, x, out_dtype=dtype, use_split_accumulator=False)
        return y, x, w

    @staticmethod
    def _functional_backward(
        *,
        grad_output: Any,
        input: Any,
        weight: Any,
        input_requires_grad: bool,
        weight_requires_grad: bool,
        dtype: Any,
        **quantizers: Any,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        dx = dw = None
        if input_requires_grad:
            dx, *_ = general_gemm(weight, grad_output, out_dtype=dtype, layout="NN", use_split_accumulator=True)
        if weight_requires_grad:
            dw, *_ = general_gemm(input, grad_output, out_dtype=dtype, layout="NT", use_split_accumulator=True)
        return dx, dw
