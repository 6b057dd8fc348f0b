"""Number formats: FP8 (E4M3, E5M2), E8M0 scales and E2M1 (FP4), with casts that saturate and round to nearest even.

Sources: OCP 8-bit Floating Point Specification (E4M3, E5M2), OCP Microscaling Formats v1.0 (E8M0, E2M1). All inputs
are float32; every function works on any device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

FP32_MAX = 3.4028234663852886e38  # (2 - 2^-23) * 2^127
E8M0_BIAS = 127
E2M1_MAX = 6.0
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # codes 0..7; bit 3 is the sign


@dataclass(frozen=True)
class ElementFormat:
    """An 8-bit element format. ``emax`` is the exponent of the largest power of two that it holds."""

    name: str
    dtype: torch.dtype
    max: float
    emax: int


E4M3 = ElementFormat("e4m3", torch.float8_e4m3fn, 448.0, 8)
E5M2 = ElementFormat("e5m2", torch.float8_e5m2, 57344.0, 15)


def cast_saturating(values: torch.Tensor, target: ElementFormat) -> torch.Tensor:
    """Round float32 ``values`` to ``target``, nearest even; beyond its range (infinities too) its largest value.

    The clamp comes first because torch's own casts differ: on the CPU float8_e5m2 overflows to infinity, and
    float8_e4m3fn on older CUDA builds to NaN (pytorch#178817). NaN passes through clamp and cast.
    """
    return values.clamp(-target.max, target.max).to(target.dtype)


def exp2_exact(exponent: torch.Tensor) -> torch.Tensor:
    """2^e as float32 for int32 ``exponent`` in [-127, 127], made from bits; 2^-127 is subnormal."""
    bits = torch.where(exponent > -E8M0_BIAS, (exponent + E8M0_BIAS) << 23, torch.full_like(exponent, 1 << 22))
    return bits.view(torch.float32)


def floor_power_of_two(values: torch.Tensor) -> torch.Tensor:
    """2^floor(log2 v) for positive normal float32 ``values``: the mantissa bits are cleared."""
    return (values.view(torch.int32) & 0x7F800000).view(torch.float32)


def e8m0_ceil(quotient: torch.Tensor) -> torch.Tensor:
    """Exponent e (int32) of the smallest 2^e >= ``quotient`` (float32, not negative), clamped to [-127, 127].

    NaN and infinity give 127.
    """
    bits = quotient.view(torch.int32) & 0x7FFFFFFF
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    # A subnormal quotient is mantissa * 2^-149; 2^-127, the smallest E8M0 value, is mantissa 2^22 there.
    above = torch.where(exponent > 0, mantissa > 0, mantissa > (1 << 22))
    return (exponent + above.to(torch.int32)).clamp(0, 254) - E8M0_BIAS


def e8m0_floor(amax: torch.Tensor, emax: int) -> torch.Tensor:
    """Exponent floor(log2 amax) - emax (int32) of float32 ``amax``, clamped to [-127, 127].

    NaN and infinity give 127. Source: OCP MX v1.0, section 6.3.
    """
    biased = (amax.view(torch.int32) & 0x7F800000) >> 23
    exponent = (biased - E8M0_BIAS - emax).clamp(-E8M0_BIAS, E8M0_BIAS)
    return torch.where(biased == 255, torch.full_like(exponent, E8M0_BIAS), exponent)


def e8m0_tensor(exponent: torch.Tensor) -> torch.Tensor:
    """Exponents in [-127, 127] as a float8_e8m0fnu tensor."""
    return (exponent + E8M0_BIAS).to(torch.uint8).view(torch.float8_e8m0fnu)


def scale_values(scale: torch.Tensor) -> torch.Tensor:
    """Decode scales of any format as float32. E8M0 goes by its bytes: not every torch build converts it on CUDA."""
    if scale.dtype == torch.float8_e8m0fnu:
        return exp2_exact(scale.view(torch.uint8).to(torch.int32) - E8M0_BIAS)
    return scale.to(torch.float32)


def e2m1_encode(values: torch.Tensor) -> torch.Tensor:
    """E2M1 codes 0..15 (uint8, one per element) of float32 ``values``: nearest even, saturating, NaN gives +6.

    Halfway points go to the even code, so 0.25 -> 0, 0.75 -> 1, 1.25 -> 1, 1.75 -> 2, 2.5 -> 2, 3.5 -> 4, 5 -> 4.
    """
    magnitude = values.abs()
    code = torch.zeros_like(values, dtype=torch.uint8)
    for midpoint, above_is_even in ((0.25, 0), (0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5.0, 0)):
        code += (magnitude >= midpoint) if above_is_even else (magnitude > midpoint)
    code = torch.where(values.isnan(), torch.full_like(code, 7), code)
    negative = torch.signbit(values) & ~values.isnan()
    return code | (negative.to(torch.uint8) << 3)


def e2m1_decode(codes: torch.Tensor) -> torch.Tensor:
    """Float32 values of E2M1 codes 0..15.

    Computed, not looked up: a table would be copied from the host, which ends the capture of a CUDA graph.
    """
    magnitude = (codes & 7).to(torch.float32)
    # Codes 2e and 2e + 1 stand for 2^(e-1) and 1.5 * 2^(e-1) from e = 1 on; codes 0 and 1 for 0 and 0.5.
    exponent, mantissa = (codes >> 1) & 3, (codes & 1).to(torch.float32)
    normal = (1.0 + 0.5 * mantissa) * exp2_exact(exponent.to(torch.int32) - 1)
    value = torch.where(exponent == 0, 0.5 * magnitude, normal)
    return torch.where(codes >= 8, -value, value)


def e2m1_pack(codes: torch.Tensor) -> torch.Tensor:
    """(rows, k) codes to (rows, k / 2) bytes, the first element of a pair in the low four bits; k must be even."""
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def e2m1_unpack(packed: torch.Tensor) -> torch.Tensor:
    """Inverse of :func:`e2m1_pack`."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).reshape(packed.shape[0], -1)
