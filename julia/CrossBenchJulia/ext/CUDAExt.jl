module CUDAExt

using CrossBenchJulia
using CUDA
using MLDataDevices: CUDADevice, gpu_device
import cuDNN

# Since CUDA.jl 6 what is not its public interface is in CUDACore.
const Internals = isdefined(CUDA, :CUDACore) ? CUDA.CUDACore : CUDA

function CrossBenchJulia.select_device(::Val{:gpu})
    CUDA.functional(true)
    # This keeps cuBLAS from TensorFloat-32; only NVIDIA_TF32_OVERRIDE=0 keeps cuDNN from
    # it.
    CUDA.math_mode!(CUDA.PEDANTIC_MATH)
    # The second `nothing` keeps the element type; the default makes Float32 of Float64.
    return gpu_device(nothing, nothing; force = true)
end

# cuDNN may make Float16 of a convolution's operands then, which have the same 10 bits of
# mantissa.
CrossBenchJulia.allow_tensorfloat32(::CUDADevice) =
    CUDA.math_mode!(CUDA.FAST_MATH; precision = :TensorFloat32)

CrossBenchJulia.synchronize(::CUDADevice) = CUDA.synchronize()

# It includes garbage that Julia has not collected. Without CUDA.jl's memory pool there is
# no counter.
function CrossBenchJulia.peak_memory(::CUDADevice)
    ismissing(CUDA.used_memory()) && return nothing
    pool = Internals.memory_pool(CUDA.device())
    return Int(Internals.attribute(UInt64, pool, Internals.MEMPOOL_ATTR_USED_MEM_HIGH))
end

function CrossBenchJulia.free_memory(::CUDADevice)
    GC.gc()
    CUDA.reclaim()
    return nothing
end

CrossBenchJulia.device_details(::CUDADevice) = Dict(
    "GPU" => CUDA.name(CUDA.device()),
    "CUDA" => string(CUDA.runtime_version()),
    "CUDA.jl" => string(pkgversion(CUDA)),
    "cuDNN" => string(cuDNN.version()),
)

end
