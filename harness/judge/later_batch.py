"""An eager step after the judged ones, the tap off, against the oracle.

The judged steps run under the tap. Code that asks whether anybody watches, or how large its input is, can be right in
them and wrong in every later one, in eager and in compiled code alike. No operand of a later step is known, so that a
rounding anywhere in front of a product may turn into a whole FP8 step: it is held to the oracle's own run of its batch,
within the noise of that run's quantisation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from harness.judge.bounds import Accumulator
from harness.judge.compare import norm
from harness.judge.oracle_provider import OracleProvider
from harness.judge.oracle_run import OracleRun, make_program
from harness.judge.oracle_steps import At, whole_step
from harness.observe.types import LaterCall, Observations

Tensors = Mapping[str, torch.Tensor]


def followed(obs: Observations, oracle: OracleRun) -> LaterCall | None:
    """The later call whose eager step the oracle can follow; None where there is none, or no ground to hold it to.

    There is none where steps differ: the program changes its weights, or runs other products from step to step.
    """
    call = next((call for call in obs.later if call.batch is not None), None)
    same = all(step.trace == oracle.steps[0].trace for step in oracle.steps)
    changes = oracle.program.update is not None or oracle.program.expects.eager_is_wrong
    return None if call is None or changes or not same else call


@dataclass(frozen=True)
class Followed:
    """Tensors of a step by name, float64: as FP8 gives them, and with every product in float64."""

    quantised: Tensors
    exact: Tensors

    def noise(self, name: str) -> float:
        """Quantisation noise over signal; 0 where nothing was quantised or there is no signal."""
        own, bare = self.quantised[name], self.exact.get(name)
        size = norm(own)
        return norm(own - bare) / size if bare is not None and 0 < size < math.inf else 0.0


def follow(obs: Observations, call: LaterCall, model_dtype: torch.dtype, accumulator: Accumulator) -> Followed:
    """The step of ``call`` on the oracle.

    Raises:
        OracleUnsupported: the program can't be built on the oracle.
    """
    made = (_step(obs, call, OracleProvider(model_dtype, mode, accumulator)) for mode in ("quantised", "exact"))
    return Followed(*made)


def _step(obs: Observations, call: LaterCall, provider: OracleProvider) -> Tensors:
    assert call.batch is not None
    program = make_program(obs, provider)
    wanted = frozenset(call.eager.grads)
    return whole_step(provider, program, call.batch, wanted, At(call.index), reset=provider.forget)
