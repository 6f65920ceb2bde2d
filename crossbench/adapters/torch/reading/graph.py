"""Records the operations of a module's forward pass, each with the line of the user's code.

They are read by torch.export: it runs the module on an example, so the sizes are known and a loop
or a condition over them is only what it comes to; and a layer, a function of torch.nn.functional, a
method and its in-place form are one operation of ATen, of which there are a few hundred.
"""

from __future__ import annotations

import inspect
import io
import logging
import pickle
import random
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....inputs.checks import short_error
from ....inputs.errors import SpecError
from ....models.parameters import Shape

BATCH = 3
"""Examples that the module is run on: a number that is seldom a size of anything else."""
TORCH = str(Path(torch.__file__).parent)
FRAME = re.compile(r'File "(.+)", line (\d+), in .+\n\s*(.*)')


@dataclass(frozen=True)
class Graph:
    """Holds the operations of a forward pass, and the values of what does not depend on the input.

    nodes: of torch.fx, in order. constants: parameters, buffers and other tensors by node name.
    names: of parameters and buffers, by node name, as the module calls them.
    """

    module: Any
    nodes: list[torch.fx.Node]
    constants: Mapping[str, Tensor]
    names: Mapping[str, str]
    input: torch.fx.Node
    output: torch.fx.Node


def recorded(module: nn.Module, example: Tensor) -> Graph:
    """Return the graph of a module in training mode; raise SpecError, with the line of the user's
    code, where it has none.
    """
    kind = type(module).__name__
    required = [
        parameter
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) != 1:
        raise SpecError(
            f"{kind}: a forward pass with {len(required)} inputs has no description: it takes one "
            "tensor"
        )
    drawn = pickle.dumps((random.getstate(), np.random.get_state()))
    try:
        with _quiet():
            exported = torch.export.export(module, (example,), strict=False)
    except Exception as error:
        raise SpecError(_failure(module, error)) from error
    if drawn != pickle.dumps((random.getstate(), np.random.get_state())):
        raise SpecError(f"{kind} draws a number in Python, which has no description")
    signature = exported.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    state = dict(module.state_dict(keep_vars=True)) | dict(module.named_buffers())
    constants = {node: state[name] for node, name in names.items()}
    first = {id(tensor): name for name, tensor in reversed(list(state.items()))}
    names = {node: first[id(state[name])] for node, name in names.items()}  # of a shared weight
    for node, name in signature.inputs_to_lifted_tensor_constants.items():
        constants[node] = exported.constants[name]
        if isinstance(attribute_of(module, name), Tensor):  # that is no buffer
            names[node] = name
    nodes = list(exported.graph.nodes)
    (given,) = signature.user_inputs
    output = next((node for node in nodes if node.name in signature.user_outputs), None)
    if output is None or not exported.call_spec.out_spec.is_leaf() or output.op == "placeholder":
        raise SpecError(
            f"{kind}: a forward pass that returns anything but one tensor, which it computes, has "
            "no description"
        )
    (start,) = (node for node in nodes if node.name == given)
    return Graph(exported, nodes, constants, names, start, output)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch's logs and warnings of an export to itself, which a failure's error repeats, and
    the user's random numbers.
    """
    before = logging.root.manager.disable
    logging.disable()
    try:
        with (
            warnings.catch_warnings(),
            redirect_stderr(io.StringIO()),
            torch.random.fork_rng(devices=[]),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def attribute_of(module: Any, path: str) -> Any:
    """Return what a dotted path leads to in a module; None where it leads nowhere."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def shape_of(node: torch.fx.Node) -> Shape:
    """Return the shape of a node's tensor, of the first one where it has several."""
    found = node.meta["val"]
    return tuple(map(int, (found[0] if isinstance(found, list | tuple) else found).shape))


def line_of(node: torch.fx.Node) -> str:
    """Return the user's line that a node comes from, "mine.py:41"."""
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(TORCH)]
    if own:
        return f"{Path(own[-1][0]).name}:{own[-1][1]}"
    layers = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    return f"its layer {layers[-1]}" if layers else "the module"


def called(node: torch.fx.Node) -> str:
    """Return what a node calls, as the user's line has it where that can be told."""
    name = operation(node)
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    words = re.findall(r"[A-Za-z_][\w.]*(?=\()", frames[-1][2]) if frames else []
    last = name.rstrip("_").rpartition("_")[2]
    return next((word for word in words if word.rstrip("_").endswith(last)), f"aten.{name}")


def operation(node: torch.fx.Node) -> str:
    """Return the name of a node's operation in ATen, without its overload: "conv2d"."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.overloadpacket.__name__
    return getattr(target, "__name__", str(target))


def refused(node: torch.fx.Node, why: str = "has no description") -> SpecError:
    """Return the error of an operation that cannot be described."""
    return SpecError(f"{line_of(node)}: {called(node)} {why}")


def _failure(module: nn.Module, error: Exception) -> str:
    """Return why a module has no graph, in a line with the place in the user's code."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_foreign(f.filename)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    if "DataDependent" in type(error).__name__ or "data-dependent" in str(error):
        return f"{where or type(module).__name__} decides by a tensor's value"
    return f"{where or type(module).__name__}: {short_error(error)}"


def _is_foreign(filename: str) -> bool:
    own = str(Path(__file__).parent)
    return filename.startswith((TORCH, own, "<"))
