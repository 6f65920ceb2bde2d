# Where a workload is. The GPU's methods are in ext/CUDAExt.jl, loaded when CUDA.jl and cuDNN are.

mover(name::AbstractString) = mover(Val(Symbol(name)))
mover(::Val{:cpu}) = cpu_device()
mover(::Val{D}) where {D} = error("the device $D needs CUDA.jl and cuDNN, which are not loaded")

"""Wait until the device has nothing left to do. The CPU has, when a call returns."""
synchronize(device) = nothing

"""The most bytes in use on the device, or `nothing` where there is no such counter."""
peak_memory(device) = nothing
