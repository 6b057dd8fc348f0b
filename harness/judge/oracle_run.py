"""Running a cell's program on the oracle, step by step beside a judged run, and taking its result apart."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from harness.judge.alpha import Component, Shares
from harness.judge.bounds import Accumulator
from harness.judge.oracle_engine import DGRAD, FPROP, WGRAD, ReplayEngine
from harness.judge.oracle_kernels import behind
from harness.judge.oracle_noise import Noise, measure_noise
from harness.judge.oracle_provider import OracleProvider, OracleUnsupported
from harness.judge.oracle_sites import Behind, Hints, ProductRun, Site, TraceEntry
from harness.judge.oracle_steps import OUTPUT, At, Live, backward, forward, gradients, load_buffers, load_parameters
from harness.observe.types import Batch, Observations, RunSeen
from harness.program import NoOracle, Program
from harness.providers.protocol import TapRecord


@dataclass(frozen=True)
class OracleStep:
    """One step on the oracle. ``grads`` are named as in StepTensors; all tensors float64.

    ``left_over``: tap records of this step that no FP8 product of the program asked for; ``unknown``: records whose
    weight belongs to no layer. ``noise``: of the program's high-precision operations, where it was measured.
    ``source``: the linear call whose result the output is, activations aside.
    """

    output: torch.Tensor
    grads: Mapping[str, torch.Tensor]
    sites: Sequence[Site]
    trace: tuple[TraceEntry, ...]
    left_over: Sequence[TapRecord] = ()
    unknown: Sequence[TapRecord] = ()
    noise: Noise = field(default_factory=Noise)
    source: Behind | None = None

    @property
    def products(self) -> list[ProductRun]:
        """FP8 products: forward in program order, then backward in the order in which gradients flow."""
        forward = [site.products[FPROP] for site in self.sites if FPROP in site.products]
        backward = [
            site.products[name] for site in reversed(self.sites) for name in (DGRAD, WGRAD) if name in site.products
        ]
        return forward + backward


@dataclass
class OracleRun:
    """A program on the oracle with the results of its steps; the last step's autograd graph is kept for shares."""

    provider: OracleProvider
    program: Program
    batches: Sequence[Batch]
    steps: tuple[OracleStep, ...]
    compiled: bool
    _live: Live

    @functools.cached_property
    def shares(self) -> Mapping[str, Shares]:
        """By tensor: the output, input gradients and the weights of FP8 layers; empty where nothing was quantised."""
        step = self.steps[-1]
        if not step.products:
            return {}
        removed = {(p.site, p.product) for p in step.products}
        bare_output, bare_grads = self._replay(removed)
        shares = {OUTPUT: Shares(Component("all", step.output - bare_output), self._output_shares(step, bare_output))}
        for name, grad in step.grads.items():
            whole = Component("all", grad - bare_grads[name])
            if name in self._live.inputs:
                shares[name] = Shares(whole, self._input_shares(step, name))
            elif name.rpartition(".")[2] == "weight":
                own = self._weight_shares(step, name.rpartition(".")[0])
                if own:
                    rest = whole.share - torch.stack([c.share for c in own]).sum(0)
                    shares[name] = Shares(whole, own, Component("rest", rest))
        return shares

    @functools.cached_property
    def unquantised(self) -> Mapping[str, torch.Tensor]:
        """The program's tensors without any quantisation error (roundings to its dtype kept), by name."""
        step = self.steps[-1]
        tensors = {OUTPUT: step.output, **step.grads}
        return {name: tensors[name] - share.whole.share for name, share in self.shares.items()}

    def _replay(self, removed: set[tuple[int, str]]) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        with self.provider.replaying(ReplayEngine(self.provider.run, removed)):
            live = self._forward()
            return live.output.detach(), backward(self.provider, live, self.batches[-1])

    def _forward(self) -> Live:
        """The last step once more, on the engine that is in force."""
        at = At(len(self.steps) - 1, self.compiled)
        return forward(self.program, self.batches[-1], self._live.wanted, at)

    def _output_shares(self, step: OracleStep, bare: torch.Tensor) -> tuple[Component, ...]:
        forwards = [p for p in step.products if p.product == FPROP]
        if len(forwards) == 1:
            return (Component(forwards[0].label, step.output - bare),)
        components = []
        for product in forwards:
            with torch.no_grad(), self.provider.replaying(ReplayEngine(self.provider.run, {(product.site, FPROP)})):
                live = self._forward()
            components.append(Component(product.label, step.output - live.output))
        return tuple(components)

    def _input_shares(self, step: OracleStep, name: str) -> tuple[Component, ...]:
        components = []
        for product in [p for p in step.products if p.product == DGRAD]:
            engine = ReplayEngine(self.provider.run, {(product.site, DGRAD)}, weights=False)
            with self.provider.replaying(engine):
                wanted = [self._live.inputs[name]]
                (grad,) = gradients(self.provider, self._live, wanted, self.batches[-1], retain=True)
            if grad is not None:
                components.append(Component(product.label, step.grads[name] - grad))
        return tuple(components)

    def _weight_shares(self, step: OracleStep, layer: str) -> tuple[Component, ...]:
        uses = [site.products[WGRAD] for site in step.sites if site.name == layer and WGRAD in site.products]
        many = len(uses) > 1
        return tuple(Component(f"{p.label} of use {i + 1}" if many else p.label, p.error) for i, p in enumerate(uses))


def run_oracle(
    obs: Observations,
    run: RunSeen,
    model_dtype: torch.dtype,
    accumulator: Accumulator,
    noises: Sequence[Noise] = (),
    *,
    compiled: bool = False,
    merging: bool = False,
) -> OracleRun:
    """All steps of ``run`` on the oracle, each beside the tap's records of that step, from that step's weights on.

    ``noises``: of each step, from :func:`noises_of`; none by default. ``compiled``: which of the two runs it is, for
    programs that do something else under compile. ``merging``: AOT compiled it, which runs equal products once.

    Raises:
        OracleUnsupported: the program can't be built or run by the oracle.
        ValueError: there is not one batch for each step.
    """
    if len(obs.batches) != len(run.steps):
        raise ValueError(f"judging {len(run.steps)} steps takes as many batches, not {len(obs.batches)}")
    provider = OracleProvider(model_dtype, accumulator=accumulator)
    program = make_program(obs, provider)
    aliases = aliases_of(program.model)
    count = len(run.steps)
    steps: list[OracleStep] = []
    for index in range(count):
        batch = obs.batches[index]
        hints = Hints(records_of_step(run, index), run.layers, merging=merging, aliases=aliases)
        noise = noises[index] if noises else Noise()
        provider.begin_step(hints, noise.operands)
        load_weights(program, run, index)
        wanted = frozenset(run.steps[index].grads)
        live = forward(program, batch, wanted, At(index, compiled), reset=provider.forget)
        grads = backward(provider, live, batch, retain=index == count - 1)
        steps.append(
            OracleStep(
                live.output.detach().to(torch.float64),
                grads,
                provider.run.sites,
                provider.trace,
                hints.left_over(),
                hints.unknown,
                noise,
                behind(live.output),
            )
        )
    return OracleRun(provider, program, obs.batches, tuple(steps), compiled, live)


def aliases_of(model: torch.nn.Module) -> Mapping[str, str]:
    """Each module with a weight -> the first one that has the same weight: tied layers, or an embedding and a head."""
    first: dict[int, str] = {}
    weights = {name: getattr(module, "weight", None) for name, module in model.named_modules()}
    return {name: first.setdefault(id(weight), name) for name, weight in weights.items() if weight is not None}


def foreign_layers(run: OracleRun, judged: RunSeen) -> Sequence[str]:
    """Layers of the judged program that ran FP8 products and are none of the oracle's, by name where they have one."""
    aliases = aliases_of(run.program.model)
    own = {aliases.get(name, name) for name in run.provider.layer_names}
    names = [judged.layers.get(record.weight_ptr) for record in judged.records]
    foreign = [name for name in names if name is None or aliases.get(name, name) not in own]
    return tuple(dict.fromkeys("one without a weight of its own" if name is None else name for name in foreign))


def load_weights(program: Program, run: RunSeen, index: int) -> None:
    """The weights that step ``index`` of the judged run began with, where its program changes them."""
    if index > 0 and run.steps[index - 1].weights:
        load_parameters(program.model, run.steps[index - 1].weights)


def make_program(obs: Observations, provider: OracleProvider) -> Program:
    """The cell's program on ``provider``, with the judged program's initial parameters.

    Raises:
        OracleUnsupported: the oracle can't build it, or it has other parameters there.
    """
    if obs.rebuild is None:
        raise OracleUnsupported("the program can't be rebuilt on the oracle")
    try:
        program = obs.rebuild(provider)
    except NoOracle as error:
        raise OracleUnsupported(str(error)) from error
    load_parameters(program.model, obs.parameters)
    load_buffers(program.model, obs.buffers)
    provider.name_layers(program.model)
    return program


def noises_of(obs: Observations, run: RunSeen, model_dtype: torch.dtype) -> tuple[Noise, ...]:
    """Noise of each step of ``run`` (harness.judge.oracle_noise).

    Raises:
        RuntimeError: the program's operations can't run in ``model_dtype``.
    """
    noises = []
    for index, (batch, step) in enumerate(zip(obs.batches, run.steps, strict=True)):

        def make(provider: OracleProvider, index: int = index) -> Program:
            program = make_program(obs, provider)
            load_weights(program, run, index)
            return program

        noises.append(measure_noise(make, batch, frozenset(step.grads), model_dtype, At(index)))
    return tuple(noises)


def records_of_step(run: RunSeen, index: int) -> list[TapRecord]:
    """The tap's records of step ``index``; all of them where the run doesn't say (a single step)."""
    if not run.steps_of_records:
        return list(run.records) if index == 0 else []
    return [record for record, owner in zip(run.records, run.steps_of_records, strict=True) if owner == index]
