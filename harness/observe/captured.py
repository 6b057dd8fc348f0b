"""How many FP8 calls a captured graph makes: the half of "captured = executed" that stands in the graph."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from harness import torch_compat


def count_fp8_calls(graph: torch.fx.GraphModule, fp8_ops: frozenset[str]) -> int:
    """Calls of ``fp8_ops`` that running ``graph`` once makes, those in the bodies of higher-order operators included.

    Of ``torch.cond`` the longer branch counts. The trip count of loop operators is not in the graph: their body counts
    once.
    """
    total = 0
    for node in graph.graph.nodes:
        if node.op == "call_function" and torch_compat.operator_name(node.target) in fp8_ops:
            total += 1
        elif node.op == "call_module":
            total += _count_module(graph.get_submodule(str(node.target)), fp8_ops)
        elif node.op == "call_function":
            total += _count_bodies(graph, node, fp8_ops)
    return total


def count_left_by_aot(fp8_calls: int, forwards: Sequence[str], fp8_ops: frozenset[str]) -> int:
    """How many of a Dynamo graph's ``fp8_calls`` are in what AOT made of it.

    AOT merges calls on the very same operands and drops those whose result nobody uses: the ones that are gone can't
    execute. ``forwards`` are its forward graphs as source text; without any (no AOT, or one that says nothing) all are
    left.
    """
    if not forwards:
        return fp8_calls
    names = "|".join(re.escape(name.replace("::", ".")) for name in sorted(fp8_ops))
    call = re.compile(rf"torch\.ops\.(?:{names})\.\w+")
    code = (line.partition("#")[0] for text in forwards for line in text.splitlines())  # comments quote the user's code
    return min(fp8_calls, sum(len(call.findall(line)) for line in code))


def _count_bodies(graph: torch.fx.GraphModule, node: torch.fx.Node, fp8_ops: frozenset[str]) -> int:
    name = torch_compat.operator_name(node.target)
    if not name.startswith("higher_order::"):
        return 0
    bodies = [arg for arg in node.args if isinstance(arg, torch.fx.Node) and arg.op == "get_attr"]
    if name == "higher_order::autograd_function_apply":
        bodies = bodies[:1]  # the second is its backward
    counts = [_count_module(_attribute(graph, str(body.target)), fp8_ops) for body in bodies]
    return max(counts, default=0) if name == "higher_order::cond" else sum(counts)


def _count_module(module: object, fp8_ops: frozenset[str]) -> int:
    return count_fp8_calls(module, fp8_ops) if isinstance(module, torch.fx.GraphModule) else 0


def _attribute(graph: torch.fx.GraphModule, path: str) -> object:
    value: object = graph
    for part in path.split("."):
        value = getattr(value, part)
    return value
