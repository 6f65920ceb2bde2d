"""Reads what takes several operations in PyTorch, and is one layer of a description.

These are attention, recurrent networks, and parts of a dense layer's outputs. Attention is found at
its end, and looked for backwards. What it is taken for need not be certain: the description is
proved to be the module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from .... import models
from ....inputs.errors import SpecError
from .graph import BATCH, line_of, operation, refused, shape_of
from .operations import Reader, Value, argument, dense, weights

MOVES = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze"}
MOVES |= {"permute", "transpose", "contiguous", "clone", "expand", "repeat_interleave", "movedim"}
MOVES |= {"alias", "detach", "to", "_to_copy", "float", "type_as", "slice"}
WITH_INDEXES = {"max", "adaptive_max_pool1d", "adaptive_max_pool2d", "max_pool2d_with_indices"}
PARTS = {"chunk", "split", "split_with_sizes", "unbind", "select"}


def whole(reader: Reader, node: Any) -> Value | None:
    """Return the value of a node that ends one of them; None for any other node."""
    name = operation(node)
    if name == "getitem":
        return _part(reader, node)
    if name == "select":
        return _last_outputs(reader, node)
    if name == "cat" and len(node.args[0]) == 2:
        return _both_states(reader, *node.args[0])
    if name in ("mul", "div"):
        return _root_mean_square(reader, node)
    if name == "linear":
        found = _attention_before(node)
        return None if found is None else attention(reader, node, found)
    if name in MOVES and node.args[0].name in reader.attended:
        # nn.MultiheadAttention has the places in front of the batch, and gives them back so
        value = reader.value(node.args[0])
        if shape_of(node) != (BATCH, *value.shape):
            reader.attended.add(node.name)
        return value
    return None


# Parts of a dense layer's outputs, and recurrent networks


def _part(reader: Reader, node: Any) -> Value | None:
    source, index = node.args
    name = operation(source)
    if name in ("lstm", "gru"):
        if index:
            raise refused(source, "whose states are used other than as h[-1] has no description")
        return recurrent(reader, node, source, index)
    if name in WITH_INDEXES and index == 0:
        return reader.value(source)
    if name in ("chunk", "split", "split_with_sizes") and operation(source.args[0]) == "linear":
        rows = _rows(source, index)
        layer = source.args[0]
        axis = argument(source, 2, "dim", 0) % len(shape_of(layer))
        if axis == len(shape_of(layer)) - 1:
            given = weights(reader, weight=layer.args[1], bias=argument(layer, 2, "bias"))
            value = reader.value(layer.args[0])
            return dense(reader, node, value, {n: w[rows] for n, w in given.items()})
    raise refused(source)


def _states(node: Any) -> tuple[Any, int] | None:
    """Return the recurrent network one of whose last states a node is, and which one it is, counted
    from the end; None for any other node.
    """
    if node.op != "call_function" or operation(node) != "select" or node.args[1] != 0:
        return None
    source = node.args[0]
    network = source.args[0] if operation(source) == "getitem" else None
    if network is None or operation(network) not in ("lstm", "gru") or source.args[1] != 1:
        return None
    states = shape_of(source)[0]
    return network, node.args[2] % states - states


def _last_outputs(reader: Reader, node: Any) -> Value | None:
    """Return the outputs of the last place, h[-1] or out[:, -1]; None for another selection."""
    if found := _states(node):
        network, place = found
        if place != -1 or network.args[7]:
            raise refused(node, "of another state than the last layer's has no description")
        return recurrent(reader, node, network, 1)
    source = node.args[0]
    while operation(source) in ("slice", "contiguous"):
        source = source.args[0]
    if source.op != "call_function" or operation(source) != "getitem" or node.args[1] != 1:
        return None
    network, index = source.args
    if operation(network) not in ("lstm", "gru") or index != 0:
        return None
    length = shape_of(source)[1]
    if network.args[7]:
        raise refused(
            node,
            "of a place of a network that goes both ways has no description; h[-2], h[-1] do",
        )
    if node.args[2] % length != length - 1:
        raise refused(node, "of another place than the last has no description")
    return recurrent(reader, node, network, 1)


def _both_states(reader: Reader, first: Any, second: Any) -> Value | None:
    """Return the last states of both directions behind one another, h[-2] and h[-1]."""
    before, behind = _states(first), _states(second)
    if before is None or behind is None or before[0] is not behind[0] or not before[0].args[7]:
        return None
    if (before[1], behind[1]) != (-2, -1):
        raise refused(first, "of the second direction before the first has no description")
    return recurrent(reader, first, before[0], 1)


def _root_mean_square(reader: Reader, node: Any) -> Value | None:
    """Return x / sqrt(mean of x² + epsilon), as Llama's code has it; None for another product."""
    given, root = node.args[:2]
    for x, factor in ((given, root), (root, given)):
        if not isinstance(factor, torch.fx.Node) or operation(factor) not in ("rsqrt", "sqrt"):
            continue
        added = factor.args[0]
        if operation(added) != "add" or operation(added.args[0]) != "mean":
            continue
        squared = added.args[0].args[0]
        if _unmoved(squared.args[0]) is not _unmoved(x):
            return None
        value = reader.value(x)
        axes = argument(added.args[0], 1, "dim")
        last = len(value.axes)
        if [axis % (last + 1) for axis in axes] == [last] and value.axes[-1] == value.channel_axis:
            return reader.same_axes(node, value, models.RMSNorm(added.args[1], affine=False))
    return None


def _unmoved(node: Any) -> Any:
    """Return what a node is a copy of."""
    while node.op == "call_function" and operation(node) in ("to", "float", "_to_copy"):
        node = node.args[0]
    return node


def _rows(node: Any, index: int) -> slice:
    """Return which outputs a part of a split has."""
    sizes = [int(value.shape[-1]) for value in node.meta["val"]]
    start = sum(sizes[:index])
    return slice(start, start + sizes[index])


def recurrent(reader: Reader, node: Any, source: Any, index: int) -> Value:
    """Return all outputs of an LSTM or a GRU, or those of the last states."""
    is_lstm = operation(source) == "lstm"
    given, states, arrays, has_biases, layers, rate, _, both_ways, batch_first = source.args
    for state in states if isinstance(states, list | tuple) else [states]:
        if not _is_zero(reader, state):
            raise refused(source, "from other states than zeros has no description")
    if not batch_first:
        raise refused(source, "without batch_first has no description")
    if not has_biases:
        raise refused(source, "without biases has no description")
    value = reader.value(given)
    if len(value.shape) != 2 or not value.is_plain:
        raise refused(source, "of what is no sequence has no description")
    if index > 1:
        raise refused(source, "whose cells' states are used has no description")
    is_last = index == 1
    kind = models.LSTM if is_lstm else models.GRU
    tensors = [reader.constants[array.name] for array in arrays]
    per_layer = 8 if both_ways else 4
    for number in range(layers):
        features = tensors[number * per_layer + 1].shape[1]
        sequences = not (is_last and number == layers - 1)
        layer = kind(features, both_ways, sequences=sequences, both_biases=True)
        names = ["weight_ih", "weight_hh", "bias", "bias_hh"]
        names += [f"{name}_reverse" for name in names] * both_ways
        own = tensors[number * per_layer : (number + 1) * per_layer]
        value = reader.add(source, value, layer, weights=dict(zip(names, own, strict=True)))
        if rate and number < layers - 1:
            value = reader.add(source, value, models.Dropout(rate))
    return value


def _is_zero(reader: Reader, node: Any) -> bool:
    """Return whether a node has only zeros, which may have the input's dtype or device."""
    constant = reader.constant(node)
    if constant is not None:
        return not constant.any()
    if operation(node) in ("new_zeros", "zeros_like"):
        return True
    return operation(node) in ("type_as", "to", "_to_copy") and _is_zero(reader, node.args[0])


# Attention


def _is_weighted(node: Any) -> bool:
    """Return whether a node multiplies the weights of a softmax by values."""
    return operation(node) in ("matmul", "bmm") and _softmax(node.args[0]) is not None


def _softmax(node: Any) -> Any:
    while operation(node) in MOVES | {"dropout"} and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node if operation(node) in ("softmax", "_softmax") else None


def _attention_before(node: Any) -> Any:
    """Return the attention whose joined heads a projection takes, or None."""
    before = node.args[0]
    while operation(before) in MOVES and before.all_input_nodes:
        before = before.all_input_nodes[0]
        if before.op != "call_function":
            return None
    is_one = operation(before) == "scaled_dot_product_attention" or (
        before.op == "call_function" and _is_weighted(before)
    )
    return before if is_one else None


def attention(reader: Reader, node: Any, end: Any) -> Value:
    """Return what is attended, from before the projections to behind the last one."""
    if operation(end) == "scaled_dot_product_attention":
        query, key, given = end.args[:3]
        mask, rate = argument(end, 3, "attn_mask"), argument(end, 4, "dropout_p", 0.0)
        scale = argument(end, 6, "scale")
        if scale is not None and not math.isclose(scale, shape_of(query)[-1] ** -0.5):
            raise refused(end, "with a scale of its own has no description")
        causal = bool(argument(end, 5, "is_causal", False))
        allowed = None if mask is None else reader.constant(mask)
        if mask is not None and allowed is None:
            raise refused(end, "with a mask that goes by the input has no description")
    else:
        query, key, allowed, rate = _by_hand(reader, end)
        given, causal = end.args[1], False
    if rate:
        raise refused(end, "with dropout of its weights has no description: dropout=0")
    *batch, places, width = shape_of(query)
    together = math.prod(batch) // BATCH
    sources = [_projection(reader, one, together, width) for one in (query, key, given)]
    value = _readable(reader, sources[0][0])
    if any(source[0] is not sources[0][0] for source in sources):
        raise refused(end, "to another input than its queries' has no description")
    if len(value.shape) != 2 or not value.is_plain:
        raise refused(end, "of what is no sequence has no description")
    window = None
    if allowed is not None:
        causal, window = _mask(end, allowed, places)
    found: dict[str, Tensor] = {}
    for name, (_, tensors) in zip(("query", "key", "value"), sources, strict=True):
        found |= {f"{name}_{kind}": tensor for kind, tensor in tensors.items()}
    last = weights(reader, weight=node.args[1], bias=argument(node, 2, "bias"))
    found |= {f"output_{kind}": tensor for kind, tensor in last.items()}
    heads, key_heads = (len(found[f"{name}_weight"]) // width for name in ("query", "key"))
    features = value.shape[1]
    has_bias = "query_bias" in found
    layer = models.MultiHeadAttention(
        heads,
        causal,
        has_bias,
        kv_heads=key_heads if key_heads != heads else None,
        head_features=width if heads * width != features else None,
        window=window,
        rotary=_rotary(reader, query, width, places),
        norm=_head_norm(reader, query),
        output_bias=("bias" in last) if has_bias != ("bias" in last) else None,
    )
    if layer.norm:
        for name, one in (("query", query), ("key", key)):
            norm = next(n for n in _before(one) if operation(n) == "rms_norm")
            found[f"{name}_norm.weight"] = reader.constants[norm.args[2].name]
    if shape_of(node) != (BATCH, *value.shape):
        reader.attended.add(node.name)
    return reader.add(node, value, layer, weights=found)


def _readable(reader: Reader, node: Any) -> Value:
    """Return the value of a node, or of that whose axes it has in another order."""
    while operation(node) in MOVES and isinstance(reader.values[node.name], SpecError):
        node = node.all_input_nodes[0]
    return reader.value(node)


def _before(node: Any) -> Iterator[Any]:
    """Yield a node and those before it, up to the projections."""
    seen, waiting = set(), [node]
    while waiting:
        one = waiting.pop(0)
        if one.name in seen or one.op != "call_function":
            continue
        seen.add(one.name)
        yield one
        if operation(one) != "linear":
            waiting.extend(one.all_input_nodes)


def _projection(reader: Reader, node: Any, heads: int, width: int) -> tuple[Any, dict[str, Tensor]]:
    """Return the input of the projection that a node's heads come from, and its arrays: the rows
    that are the node's, where one projection gives queries, keys and values.
    """
    way = list(_before(node))
    layers = [one for one in way if operation(one) == "linear"]
    if len(layers) != 1:
        raise refused(node, "of heads that no dense layer gives has no description")
    (layer,) = layers
    given = weights(reader, weight=layer.args[1], bias=argument(layer, 2, "bias"))
    count = len(given["weight"])
    rows = slice(0, count)
    if count <= heads * width:
        return layer.args[0], given
    for one in reversed(way):  # from the projection on
        if operation(one) == "getitem" and operation(one.args[0]) in PARTS:
            parts = [math.prod(v.shape) for v in one.args[0].meta["val"]]
        elif operation(one) == "select":
            _, axis, index = one.args
            size = int(one.args[0].meta["val"].shape[axis])
            parts = [count // size] * size
            start = sum(parts[:index])
            rows = slice(start, start + parts[index])
            break
        else:
            continue
        whole_size, index = sum(parts), one.args[1]
        sizes = [count * part // whole_size for part in parts]
        rows = slice(sum(sizes[:index]), sum(sizes[: index + 1]))
        break
    return layer.args[0], {name: tensor[rows] for name, tensor in given.items()}


def _by_hand(reader: Reader, end: Any) -> tuple[Any, Any, Tensor | None, float]:
    """Return the queries, the keys, the mask and the dropout of attention that is written out."""
    rate, node, allowed = 0.0, end.args[0], None
    while operation(node) not in ("matmul", "bmm", "baddbmm") or node is end:
        name = operation(node)
        if name == "dropout" and node.args[2]:
            rate = node.args[1]
        elif name == "masked_fill":
            allowed = reader.constant(node.args[1])
            if allowed is None:
                raise refused(node, "with a mask that goes by the input has no description")
            allowed = ~allowed.bool()
        elif name == "add" and reader.constant(node.args[1]) is not None:
            allowed = reader.constants[node.args[1].name]
        variable = [n for n in node.all_input_nodes if n.name not in reader.constants]
        if len(variable) != 1:
            raise refused(node, "in attention has no description")
        (node,) = variable
    if operation(node) == "baddbmm":
        allowed = reader.constants[node.args[0].name]
        return node.args[1], node.args[2], allowed, rate
    return node.args[0], node.args[1], allowed, rate


def _mask(node: Any, allowed: Tensor, places: int) -> tuple[bool, int | None]:
    """Return whether a mask is causal, and the window that it leaves."""
    table = allowed.reshape(-1, *allowed.shape[-2:])[0][:places, :places]
    may = table if table.dtype == torch.bool else torch.isfinite(table) & (table > -1e4)
    if may.shape != (places, places):
        may = may.expand(places, places)
    distance = torch.arange(places)[:, None] - torch.arange(places)
    for window in (None, *range(1, places)):
        near = torch.ones_like(may) if window is None else distance.abs() < window
        for causal in (False, True):
            if torch.equal(may.cpu(), near & ((distance >= 0) | (not causal))):
                return causal, window
    raise refused(node, "with a mask that is neither causal nor a window has no description")


def _head_norm(reader: Reader, query: Any) -> models.RMSNorm | None:
    norms = [one for one in _before(query) if operation(one) == "rms_norm"]
    return models.RMSNorm(norms[0].args[3]) if norms else None


def _rotary(reader: Reader, query: Any, width: int, places: int) -> models.Rotary | None:
    """Return how queries are rotated: their way has products with cosines and sines of places."""
    way = list(_before(query))
    tables = {
        given.name: tensor
        for one in way
        if operation(one) == "mul"
        for given in one.all_input_nodes
        if (tensor := reader.constants.get(given.name)) is not None and tensor.numel() > 1
    }
    if not tables:
        return None
    base = _base(tables.values(), width)
    if base is None:
        raise SpecError(f"{line_of(query)}: what is done to the queries has no description")
    by_name = {node.name: node for node in reader.graph.nodes}
    for name in tables:
        reader.keep_exact(by_name[name], lambda held: _rotation(held, base, width))
    names = {operation(one) for one in way}
    in_pairs = bool(names & {"stack", "view_as_complex", "unbind"}) or any(
        operation(one) == "slice" and argument(one, 4, "step", 1) == 2 for one in way
    )
    return models.Rotary(base, interleaved=in_pairs)


def _base(tables: Iterable[Tensor], width: int) -> float | None:
    """Return the base of the angles, of a table with their sines; None without one."""
    for table in tables:
        values = torch.view_as_real(table)[..., 1] if table.is_complex() else table
        rows = values.reshape(-1, values.shape[-1]).double()
        if len(rows) < 2 or rows[0].abs().max() > 1e-6:  # the sines of the place 0 are 0
            continue
        angles = rows[1].asin().unique(sorted=True).flip(0)
        if width == 2 or len(angles) < 2:
            return 10_000.0
        base = float(angles[0] / angles[1]) ** (width / 2)
        return float(f"{base:.4g}")
    return None


def _rotation(held: Tensor, base: float, width: int) -> Tensor | None:
    """Return the table of a rotation that a tensor holds, in float64, or None."""
    if held.ndim < 2:
        return None
    flat = held.reshape(-1, held.shape[-1])
    pairs = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.outer(torch.arange(len(flat), dtype=torch.float64), base ** (-pairs / width))
    for one in (angles.cos(), angles.sin(), torch.polar(torch.ones_like(angles), angles)):
        for table in (one, torch.cat([one, one], 1), one.repeat_interleave(2, 1)):
            is_like = table.shape == flat.shape and table.is_complex() == flat.is_complex()
            if is_like and (table - flat).abs().max() < 1e-4:
                return table.reshape(held.shape)
    return None
