module CUDAExt

using CrossBenchFlux
using CUDA
using Flux: CUDADevice, gpu_device
import cuDNN

function CrossBenchFlux.mover(::Val{:gpu})
    CUDA.functional(true)
    CUDA.math_mode!(CUDA.PEDANTIC_MATH)  # no TensorFloat-32: the table says float32
    return gpu_device(; force = true)
end

CrossBenchFlux.synchronize(::CUDADevice) = CUDA.synchronize()

function CrossBenchFlux.peak_memory(::CUDADevice)
    pool = CUDA.memory_pool(CUDA.device())
    return Int(CUDA.attribute(UInt64, pool, CUDA.MEMPOOL_ATTR_USED_MEM_HIGH))
end

end
