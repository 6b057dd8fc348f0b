"""Recipes. As in the original, delayed scaling's text leaves the algorithm out and the last one's is cached."""

import enum
from dataclasses import dataclass, field


class Format(enum.Enum):
    E4M3 = "E4M3"
    HYBRID = "HYBRID"


@dataclass(frozen=True)
class QParams:
    power_2_scale: bool = False
    amax_epsilon: float = 0.0


class Recipe:
    kind = ""

    @classmethod
    def delayed(cls) -> bool:
        return cls.kind == "delayed"

    @classmethod
    def float8_current_scaling(cls) -> bool:
        return cls.kind == "current"

    @classmethod
    def float8_block_scaling(cls) -> bool:
        return cls.kind == "block"

    @property
    def _quantisation(self) -> str:
        return f"{self.fp8_quant_fwd_inp} {self.fp8_quant_fwd_weight} {self.fp8_quant_bwd_grad}"


@dataclass(repr=False)
class DelayedScaling(Recipe):
    kind = "delayed"
    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: str = "max"

    def __post_init__(self) -> None:
        assert self.amax_history_len > 0, "no history"

    def __repr__(self) -> str:
        return f"DelayedScaling({self.margin}, {self.fp8_format.name}, {self.amax_history_len})"


@dataclass(repr=False)
class Float8CurrentScaling(Recipe):
    kind = "current"
    use_power_2_scales: bool = False
    fp8_format: Format = Format.HYBRID
    fp8_quant_fwd_inp: QParams = field(default_factory=QParams)
    fp8_quant_fwd_weight: QParams = field(default_factory=QParams)
    fp8_quant_bwd_grad: QParams = field(default_factory=QParams)

    def __repr__(self) -> str:
        return f"Float8CurrentScaling({self.fp8_format.name}, {self._quantisation})"


@dataclass(repr=False)
class Float8BlockScaling(Recipe):
    kind = "block"
    use_f32_scales: bool = False
    fp8_format: Format = Format.E4M3
    fp8_quant_fwd_inp: QParams = field(default_factory=lambda: QParams(power_2_scale=True))
    fp8_quant_fwd_weight: QParams = field(default_factory=lambda: QParams(power_2_scale=True))
    fp8_quant_bwd_grad: QParams = field(default_factory=lambda: QParams(power_2_scale=True))

    def __repr__(self) -> str:
        return f"Float8BlockScaling({self.fp8_format.name}, {self.use_f32_scales}, {self._quantisation})"


@dataclass(repr=False)
class MXFP8BlockScaling(Recipe):
    kind = "mx"
    fp8_format: Format = Format.E4M3

    def __repr__(self) -> str:
        return f"MXFP8BlockScaling({self.fp8_format.name})"


@dataclass(repr=False)
class NVFP4BlockScaling(Recipe):
    kind = "nv"
    disable_rht: bool = False
    disable_stochastic_rounding: bool = False
    disable_2d_quantization: bool = False

    def __repr__(self) -> str:
        flags = self.disable_rht, self.disable_stochastic_rounding, self.disable_2d_quantization
        return f"NVFP4BlockScaling{flags}"
