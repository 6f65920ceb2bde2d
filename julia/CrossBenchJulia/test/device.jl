# A device that is not the CPU, without a GPU: JLArrays.jl, GPUArrays.jl's reference of a
# GPU's arrays. Reading their single elements is an error, as it is slow on a GPU.
using JLArrays: JLArrays, JLArray

const MLDataDevices = parentmodule(CrossBenchJulia.CPUDevice)

"""Move arrays to JLArrays, as a GPU's device does to its own."""
struct JLDevice <: MLDataDevices.AbstractGPUDevice end
MLDataDevices.Adapt.adapt_storage(::JLDevice, x::Array) = JLArray(x)
const GENERATOR = JLArrays.GPUArrays.RNG{JLArray}(0)
MLDataDevices.default_device_rng(::JLDevice) = GENERATOR
MLDataDevices.Internal.get_device_name(::JLDevice) = "JL"
CrossBenchJulia.select_device(::Val{:jl}) = JLDevice()

"""Convert Float64 to Float32, as MLDataDevices does by default for CUDA.jl."""
struct Narrowing <: MLDataDevices.AbstractGPUDevice end
MLDataDevices.Adapt.adapt_storage(::Narrowing, x::Array) = x
MLDataDevices.Adapt.adapt_storage(::Narrowing, x::Array{Float64}) = Float32.(x)
CrossBenchJulia.select_device(::Val{:narrowing}) = Narrowing()
MLDataDevices.default_device_rng(::Narrowing) = GENERATOR
MLDataDevices.Internal.get_device_name(::Narrowing) = "Narrowing"

# CUDA.jl has a kernel for this, JLArrays.jl has none.
Base.reverse(x::JLArray; dims) = JLArray(reverse(Array(x); dims))

JLArrays.allowscalar(false)

# NNlib's generic convolutions do not run on JLArrays.
@testset "on another device in $precision: $name" for (precision, name) in (
    ("float32", "dense"),
    ("float64", "averaged"),
    ("float64", "bidirectional"),
    ("float64", "lettered"),
)
    T = CrossBenchJulia.ELTYPES[precision]
    there, values = with_batches(name, precision, "jl")
    here, _ = with_batches(name, precision)
    parameters = [CrossBenchJulia.parameter(there, name) for name in keys(values)]
    @test all(a -> a isa JLArray{T}, parameters)
    sizes = Dict("dense" => (7, 6), "bidirectional" => (8,))
    masks = Dict{String,Any}(
        "dropout$i" => reshape([j % 3 != 0 for j in 1:(4size)], size, 4) for
        (i, size) in enumerate(get(sizes, name, ()))
    )
    x, y = examples(name, T, 4)
    loss, gradients = loss_and_gradients(there, x, y, masks)
    expected, expected_gradients = loss_and_gradients(here, x, y, masks)
    @test isapprox(loss, expected; rtol = sqrt(eps(T)))
    # the gradient of a bias before a batch norm is rounding alone
    rounding = eps(T) * maximum(maximum(abs, a) for a in Base.values(expected_gradients))
    @test all(
        isapprox(gradients[name], a; atol = 100rounding, rtol = sqrt(eps(T))) for
        (name, a) in expected_gradients
    )
    @test predict(there, x) ≈ predict(here, x)
    foreach(clear_batches!, (there, here))
    for workload in (there, here), step in 1:3
        add_batch!(workload, examples(name, T, 4; shift = 10step)..., masks)
    end
    @test there.batches[1].inputs isa JLArray
    @test isapprox(train_epoch!(there), train_epoch!(here); rtol = sqrt(eps(T)))
    @test all(weights(there)[name] ≈ a for (name, a) in weights(here))
    CrossBenchJulia.free_memory(there.device)
    a, b, product = (CrossBenchJulia.put(there.device, rand(Float32, 8, 8)) for _ in 1:3)
    CrossBenchJulia.multiply!(there.device, product, a, b)
    @test CrossBenchJulia.every(product, 3) ≈ (Array(a)*Array(b))[:, 1:3:end]
    @test Array(CrossBenchJulia.copy_on!(there.device, product, a)) == Array(a)
end

@testset "a dropout draws from the device's own generator" begin
    workload, values = with_batches("dense", "float32", "jl")
    rngs = CrossBenchJulia.dropout_rngs(workload)
    @test all(rng -> rng isa JLArrays.GPUArrays.RNG, rngs)
    losses = train_epoch!(workload)
    load!(workload, values)
    x, y = examples("dense", Float32, 4)
    once = loss_and_gradients(workload, x, y)
    @test loss_and_gradients(workload, x, y) == once  # the generator did not advance
    @test train_epoch!(workload) == losses
    @test train_epoch!(workload) != losses
end

@testset "a device that rounds is an error" begin
    message = "is Float32, not Float64"
    @test_throws message with_batches("dense", "float64", "narrowing")
    workload, _ = with_batches("dense", "float32", "narrowing")
    x, y = examples("dense", Float64, 4)
    @test_throws "converts Float64 to Float32" add_batch!(workload, x, y)
end
