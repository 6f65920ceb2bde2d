module CUDAExt

using CrossBenchFlux
using CUDA
using MLDataDevices: CUDADevice, gpu_device
import cuDNN

# since CUDA.jl 6 the parts of CUDA.jl that are not its public interface are in CUDACore
const Driver = isdefined(CUDA, :CUDACore) ? CUDA.CUDACore : CUDA

function CrossBenchFlux.mover(::Val{:gpu})
    CUDA.functional(true)
    # cuBLAS takes no TensorFloat-32 then. cuDNN may, but for NVIDIA_TF32_OVERRIDE=0.
    CUDA.math_mode!(CUDA.PEDANTIC_MATH)
    # the second `nothing` keeps the element type; the default makes Float32 of Float64
    return gpu_device(nothing, nothing; force = true)
end

CrossBenchFlux.synchronize(::CUDADevice) = CUDA.synchronize()

# Includes garbage that Julia has not collected. Without CUDA.jl's memory pool there is no counter.
function CrossBenchFlux.peak_memory(::CUDADevice)
    ismissing(CUDA.used_memory()) && return nothing
    pool = Driver.memory_pool(CUDA.device())
    return Int(Driver.attribute(UInt64, pool, Driver.MEMPOOL_ATTR_USED_MEM_HIGH))
end

function CrossBenchFlux.free_memory(::CUDADevice)
    GC.gc()
    CUDA.reclaim()
    return nothing
end

CrossBenchFlux.device_details(::CUDADevice) = Dict(
    "GPU" => CUDA.name(CUDA.device()),
    "CUDA" => string(CUDA.runtime_version()),
    "CUDA.jl" => string(pkgversion(CUDA)),
    "cuDNN" => string(cuDNN.version()),
)

end
