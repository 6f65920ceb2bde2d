# A device that is not the CPU, without a GPU: JLArrays.jl, GPUArrays.jl's reference of a GPU's arrays,
# in which reading single elements is an error, as it is slow on a GPU.
using JLArrays: JLArrays, JLArray

const MLDataDevices = parentmodule(CrossBenchFlux.CPUDevice)

struct JLDevice <: MLDataDevices.AbstractGPUDevice end
Flux.Adapt.adapt_storage(::JLDevice, x::Array) = JLArray(x)
const GENERATOR = JLArrays.GPUArrays.RNG{JLArray}(0)
MLDataDevices.default_device_rng(::JLDevice) = GENERATOR
MLDataDevices.Internal.get_device_name(::JLDevice) = "JL"
CrossBenchFlux.mover(::Val{:jl}) = JLDevice()

# As MLDataDevices' default does for CUDA.jl.
struct Narrowing <: MLDataDevices.AbstractGPUDevice end
Flux.Adapt.adapt_storage(::Narrowing, x::Array) = x
Flux.Adapt.adapt_storage(::Narrowing, x::Array{Float64}) = Float32.(x)
CrossBenchFlux.mover(::Val{:narrowing}) = Narrowing()
MLDataDevices.default_device_rng(::Narrowing) = GENERATOR
MLDataDevices.Internal.get_device_name(::Narrowing) = "Narrowing"

# CUDA.jl has a kernel for it, JLArrays.jl has none
Base.reverse(x::JLArray; dims) = JLArray(reverse(Array(x); dims))

JLArrays.allowscalar(false)

"""A batch norm of features, dropouts and a ReLU: what NNlib's generic convolutions would not allow here."""
dense() = model([
        layer("Dense", "dense1", [6]; features = 7),
        norm(1, [7]),
        layer("ReLU", "relu1", [7]),
        layer("Dropout", "dropout1", [7]; rate = 0.4),
        layer("Dense", "dense2", [7]; features = 6),
        layer("Dropout", "dropout2", [6]; rate = 0.25),
        layer("Dense", "dense3", [6]; features = 3),
    ], 3)

@testset "on another device in $precision: $build" for (precision, build) in
    (("float32", dense), ("float64", bag), ("float64", words), ("float64", characters))

    T = CrossBenchFlux.NUMBER[precision]
    there, values = placed(build(), precision, "jl")
    here, _ = placed(build(), precision)
    parameters = [CrossBenchFlux.follow(there.model, way) for (_, way) in there.parameters]
    @test all(a -> a isa JLArray{T}, parameters)
    kept = masks(build(), 4)
    x, y = examples(build(), T, 4)
    loss, gradients = loss_and_gradients(there, x, y, kept)
    expected, expected_gradients = loss_and_gradients(here, x, y, kept)
    @test isapprox(loss, expected; rtol = sqrt(eps(T)))
    # a bias before a batch norm has a gradient of rounding alone
    rounding = eps(T) * maximum(maximum(abs, a) for a in Base.values(expected_gradients))
    @test all(isapprox(gradients[name], a; atol = 100rounding, rtol = sqrt(eps(T))) for
              (name, a) in expected_gradients)
    @test predict(there, x) ≈ predict(here, x)
    foreach(clear!, (there, here))
    for workload in (there, here), step in 1:3
        place!(workload, examples(build(), T, 4; shift = 10step)..., kept)
    end
    @test there.batches[1].inputs isa JLArray
    @test isapprox(train_epoch!(there), train_epoch!(here); rtol = sqrt(eps(T)))
    @test all(weights(there)[name] ≈ a for (name, a) in weights(here))
    CrossBenchFlux.free_memory(there.device)
    @test CrossBenchFlux.matrix_product(there.device, 8)() === nothing
    @test CrossBenchFlux.array_copy(there.device, 8)() === nothing
end

@testset "a dropout draws from the device's own generator" begin
    workload, values = placed(dense(), "float32", "jl")
    rngs = [CrossBenchFlux.follow(workload.model, way).rng for (_, way) in workload.dropouts]
    @test all(rng -> rng isa JLArrays.GPUArrays.RNG, rngs)
    losses = train_epoch!(workload)
    load!(workload, values)
    x, y = examples(dense(), Float32, 4)
    once = loss_and_gradients(workload, x, y)
    @test loss_and_gradients(workload, x, y) == once  # the generator did not go on
    @test train_epoch!(workload) == losses
    @test train_epoch!(workload) != losses
end

@testset "a device that rounds is an error" begin
    @test_throws "is of Float32 on Narrowing(), not of Float64" placed(dense(), "float64", "narrowing")
    workload, _ = placed(dense(), "float32", "narrowing")
    x, y = examples(dense(), Float64, 4)
    @test_throws "makes Float32 of Float64" place!(workload, x, y)
end
