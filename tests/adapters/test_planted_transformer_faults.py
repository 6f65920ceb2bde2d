"""The proof sees faults of a transformer's parts, planted in each adapter: in the attention, in the
shared weight, in how the gradients are bounded, and in when the learning rate changes. Wrong values
of a description are in test_planted_faults.py.
"""

import importlib
import math

import numpy as np
import pytest
from planting import Plant, over_the_bound
from small_models import SMALL_MODELS

from crossbench import models
from crossbench.in_julia.workload import JuliaWorkload
from crossbench.models import Optimizer, Unembedding

pytestmark = pytest.mark.short(adapter_name=("torch",))

SPEAKING = SMALL_MODELS["speaking"]
FAULTS = {
    "a mask that is off by one": "logits|gradient",
    "no scale": "logits|gradient",
    "no gradient through the last layer": "gradient of embedding1.weight",
    "clipping by value": "steps",
    "clipping each array": "steps",
    "a schedule that is a step late": "steps",
}


def in_reference(fault, plant):
    module = plant.package
    if fault == "a mask that is off by one":
        plant.part("causal_mask", lambda length: np.triu(np.ones((length, length), bool), 2))
    elif fault == "no scale":
        plant.part("attention_scale", lambda width: 1.0)
    elif fault == "no gradient through the last layer":
        original = module.forward

        def forward(layer, named, x, run):
            y, back = original(layer, named, x, run)
            if not isinstance(layer, Unembedding):
                return y, back

            def backward(dy):
                before = dict(run.gradients)
                dx = back(dy)
                run.gradients = before
                return dx

            return y, backward

        plant.part("forward", forward)
    elif fault == "a schedule that is a step late":
        rate = Optimizer.rate
        plant.method(Optimizer, "rate", lambda self, step: rate(self, max(0, step - 1)))
    else:
        plant.part("clip", lambda gradients, bound: clipped(fault, gradients, bound))


def clipped(fault, gradients, bound, norm=np.linalg.norm, clip=np.clip):
    if fault == "clipping by value":
        return {name: clip(g, -bound, bound) for name, g in gradients.items()}
    return {name: g * (bound / max(bound, norm(g.ravel()))) for name, g in gradients.items()}


def in_torch(fault, plant):
    import torch
    from torch import nn

    import crossbench.adapters.torch.layers  # noqa: F401, a part can be planted where it is loaded

    attention = nn.functional.scaled_dot_product_attention
    if fault == "a mask that is off by one":

        def wrong(q, k, v, is_causal):
            mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(1)
            return attention(q, k, v, mask)

        plant.method(nn.functional, "scaled_dot_product_attention", wrong)
    elif fault == "no scale":
        wrong = lambda q, k, v, is_causal: attention(q, k, v, is_causal=is_causal, scale=1.0)  # noqa: E731
        plant.method(nn.functional, "scaled_dot_product_attention", wrong)
    elif fault == "no gradient through the last layer":
        embed, right, tied = nn.Embedding.forward, nn.Linear.forward, set()

        def wrong(self, x):
            is_last = self.weight in tied
            return nn.functional.linear(x, self.weight.detach()) if is_last else right(self, x)

        plant.method(
            nn.Embedding, "forward", lambda self, x: (tied.add(self.weight), embed(self, x))[1]
        )
        plant.method(nn.Linear, "forward", wrong)
    elif fault == "clipping by value":
        plant.part("clip", nn.utils.clip_grad_value_)
    elif fault == "a schedule that is a step late":

        def late(description, optimizer):
            factor = description.schedule.factor
            return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: factor(max(0, t - 1)))

        plant.part("schedule", late)
    else:
        plant.part("clip", lambda ps, bound: [nn.utils.clip_grad_norm_([p], bound) for p in ps])


def in_jax(fault, plant):
    import jax
    import jax.numpy as jnp
    import optax

    layers = importlib.import_module("crossbench.adapters.jax.layers")
    attention = layers.attention
    if fault == "a mask that is off by one":
        tri = jnp.tri
        plant.method(layers.jnp, "tri", lambda n, dtype: tri(n, k=1, dtype=dtype))
    elif fault == "no scale":

        def wrong(query, *rest, **options):
            return attention(query * math.sqrt(query.shape[-1]), *rest, **options)

        plant.method(layers, "attention", wrong)
    elif fault == "no gradient through the last layer":

        def call(self, x):
            return jnp.dot(x, jax.lax.stop_gradient(self.embedding[...]).T)

        plant.method(layers.Unembedding, "__call__", call)
    elif fault == "clipping by value":
        plant.method(optax, "clip_by_global_norm", optax.clip)
    elif fault == "a schedule that is a step late":
        right = plant.package.learning_rate
        plant.part("learning_rate", lambda o: lambda t: right(o)(jnp.maximum(t - 1, 0)))
    else:
        plant.method(optax, "clip_by_global_norm", optax.clip_by_block_rms)


def in_keras(fault, plant):
    import keras
    from keras import ops

    layers = importlib.import_module("crossbench.adapters.keras.layers")
    optimizers = importlib.import_module("crossbench.adapters.keras.optimizers")
    if fault == "a mask that is off by one":
        tri = np.tri
        plant.method(layers.np, "tri", lambda n, dtype: tri(n, k=1, dtype=dtype))
    elif fault == "no scale":

        def unscaled(subscripts, query, key):
            return einsum(subscripts, query * math.sqrt(query.shape[-1]), key)

        def wrong(self, x):
            layers.ops.einsum = lambda s, *pair: (unscaled if "nkhd->" in s else einsum)(s, *pair)
            try:
                return attend(self, x)
            finally:
                layers.ops.einsum = einsum

        einsum, attend = ops.einsum, layers.SelfAttention._in_float64
        plant.method(layers.SelfAttention, "_in_float64", wrong)
    elif fault == "no gradient through the last layer":
        call = keras.layers.ReversibleEmbedding.call

        def stopped(self, inputs, reverse=False):
            if not reverse:
                return call(self, inputs)
            return ops.matmul(inputs, ops.stop_gradient(ops.transpose(self.embeddings)))

        plant.method(keras.layers.ReversibleEmbedding, "call", stopped)
    elif fault == "a schedule that is a step late":
        cosine = keras.optimizers.schedules.CosineDecay
        rate = cosine.__call__
        plant.method(cosine, "__call__", lambda self, t: rate(self, ops.maximum(t - 1, 0)))
    else:

        def clip(self, grads):
            named = {str(i): optimizers.dense(g) for i, g in enumerate(grads)}
            words = {"norm": ops.norm, "clip": ops.clip}
            if fault == "clipping each array":
                bound = self.global_clipnorm
                return [
                    g * (bound / ops.maximum(bound, ops.norm(ops.reshape(g, (-1,)))))
                    for g in named.values()
                ]
            return list(clipped(fault, named, self.global_clipnorm, **words).values())

        plant.method(optimizers.DenseGradients, "_clip_gradients", clip)


WRONG_FLUX_LAYERS = """
module WrongFluxLayers
using CrossBenchFlux: CrossBenchFlux
using CrossBenchFlux.Flux: Flux, Optimisers
using CrossBenchFlux.NNlib: dot_product_attention, make_causal_mask

struct Attention{A}
    attention::A
    off::Int
    factor::Float64
end
Flux.@layer Attention
function (layer::Attention)(x)
    a = layer.attention
    mask = Flux.ignore_derivatives(() -> [j <= i + layer.off for j in axes(x, 2), i in axes(x, 2)])
    query = a.q_proj(x) .* eltype(x)(layer.factor)
    y, _ = dot_product_attention(query, a.k_proj(x), a.v_proj(x); a.nheads, mask)
    return a.out_proj(y)
end

struct Unembedding{E}
    embedding::E
end
Flux.@layer Unembedding
function (layer::Unembedding)(x)
    weight = Flux.ignore_derivatives(() -> layer.embedding.weight)
    return reshape(weight' * reshape(x, size(x, 1), :), :, size(x)[2:end]...)
end

replaced(x) =
    x isa Union{CrossBenchFlux.SelfAttention,CrossBenchFlux.Unembedding} || Flux.Functors.isleaf(x)
function replace!(workload, type, wrong)
    exchange(layer) = layer isa type ? wrong(layer) : layer
    workload.model = Flux.fmap(exchange, workload.model; exclude = replaced)
end
attention!(w, off, factor) =
    replace!(w, CrossBenchFlux.SelfAttention, l -> Attention(l.attention, off, factor))
unembedding!(w) = replace!(w, CrossBenchFlux.Unembedding, l -> Unembedding(l.embedding))
end
"""
WRONG_LUX_LAYERS = """
module WrongLuxLayers
using CrossBenchLux: TiedModel, unembed
using Lux
using CrossBenchJulia: ignore_derivatives
using Lux.NNlib: dot_product_attention

struct Attention{A} <: LuxCore.AbstractLuxWrapperLayer{:attention}
    attention::A
    off::Int
    factor::Float64
end
function (layer::Attention)(x, ps, st)
    a = layer.attention
    mask = ignore_derivatives(() -> [j <= i + layer.off for j in axes(x, 2), i in axes(x, 2)])
    project(name) = first(getproperty(a, name)(x, getproperty(ps, name), getproperty(st, name)))
    query = project(:q_proj) .* eltype(x)(layer.factor)
    y, scores = dot_product_attention(query, project(:k_proj), project(:v_proj); a.nheads, mask)
    return (first(a.out_proj(y, ps.out_proj, st.out_proj)), scores), st
end

struct WrongTied{E,B} <: LuxCore.AbstractLuxContainerLayer{(:embedding, :body)}
    embedding::E
    body::B
end
function (model::WrongTied)(x, ps, st)
    embedded, st_embedding = model.embedding(x, ps.embedding, st.embedding)
    y, st_body = model.body(embedded, ps.body, st.body)
    weight = ignore_derivatives(() -> ps.embedding.weight)
    return unembed(weight, y), (embedding = st_embedding, body = st_body)
end

replaced(f, layer) = layer
replaced(f, layer::MultiHeadAttention) = f(layer)
replaced(f, chain::Chain) = Chain(map(layer -> replaced(f, layer), chain.layers))
replaced(f, skip::SkipConnection) = SkipConnection(replaced(f, skip.layers), skip.connection)
replaced(f, tied::TiedModel) = TiedModel(tied.embedding, replaced(f, tied.body))
attention!(w, off, factor) =
    (w.model = replaced(layer -> Attention(layer, off, factor), w.model))
unembedding!(w) = (w.model = WrongTied(w.model.embedding, w.model.body))
end
"""
WRONG_OPTIMIZERS = """
module WrongOptimizers
using CrossBenchJulia: Optimisers

function clip!(w, Rule)
    w.rule = Optimisers.OptimiserChain(Rule(w.clip_norm), w.rule)
    w.clip_norm = nothing
end
by_value!(w) = clip!(w, Optimisers.ClipGrad)
each!(w) = clip!(w, Optimisers.ClipNorm)
function delay!(w)
    right = w.schedule
    w.schedule = t -> right(max(0, t - 1))
end
end
"""


def in_julia(name, layers):
    """Return the function that plants faults in a framework of Julia.

    layers: the module, of this name, with the wrong ones.
    """

    def plant_fault(fault, plant):
        """Into each workload as it is built: its fields can be changed."""
        original = JuliaWorkload.__init__

        def build(self, job):
            original(self, job)
            import juliacall

            main = juliacall.Main
            if not main.seval("isdefined(Main, :WrongOptimizers)"):
                main.seval("import CrossBenchJulia")
                main.seval(WRONG_OPTIMIZERS)
                main.seval(layers)
            wrong, optimizers = getattr(main, name), main.WrongOptimizers
            if fault == "a mask that is off by one":
                wrong.attention_b(self.workload, 1, 1.0)
            elif fault == "no scale":
                wrong.attention_b(self.workload, 0, math.sqrt(3))  # features of a head
            elif fault == "no gradient through the last layer":
                wrong.unembedding_b(self.workload)
            elif fault == "clipping by value":
                optimizers.by_value_b(self.workload)
            elif fault == "a schedule that is a step late":
                optimizers.delay_b(self.workload)
            else:
                optimizers.each_b(self.workload)

        plant.method(JuliaWorkload, "__init__", build)

    return plant_fault


PLANT = {
    "reference": in_reference,
    "torch": in_torch,
    "jax": in_jax,
    "flux": in_julia("WrongFluxLayers", WRONG_FLUX_LAYERS),
    "lux": in_julia("WrongLuxLayers", WRONG_LUX_LAYERS),
    "keras": in_keras,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_transformer_is_caught(adapter, fault, plant, expected):
    check_caught(adapter, fault, plant, SPEAKING, expected)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_in_a_model_whose_proof_is_shortened(
    installed, fault, monkeypatch, expected
):
    """In torch alone: each proof takes many seconds."""
    model = models.get("gpt2_small")
    check_caught(installed("torch"), fault, Plant("torch", monkeypatch), model, expected)


def check_caught(adapter, fault, plant, model, expected):
    right = expected(model)
    PLANT[plant.framework](fault, plant)
    found = over_the_bound(adapter.build, model, right)
    assert any(word in name for name in found for word in FAULTS[fault].split("|")), found
