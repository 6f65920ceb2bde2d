# The devices that a workload can be on. The GPU's methods are in ext/CUDAExt.jl, which
# Julia loads when CUDA.jl and cuDNN are loaded.

"""
    select_device(name) -> device

Return the device of that name ("cpu" or "gpu"): a function that moves arrays, and whatever
holds arrays, there. It keeps their element type: Float64 stays Float64.
"""
select_device(name::AbstractString) = select_device(Val(Symbol(name)))
select_device(::Val{:cpu}) = cpu_device()
select_device(::Val{D}) where {D} =
    error("the device $D needs CUDA.jl and cuDNN, which are not loaded")

"""
    allow_tensorfloat32(device)

Let products of Float32 be computed in TensorFloat-32, for what the process computes until
the device is selected again. Only a GPU has it.
"""
function allow_tensorfloat32 end

"""
    to_device(device, x) -> array on the device

Return `device(x)`; raise an error if its element type is not that of `x`.
"""
function to_device(device, x)
    moved = device(x)
    eltype(moved) == eltype(x) || error("$device converts $(eltype(x)) to $(eltype(moved))")
    return moved
end

"""
    copy_if_shared(device, batch) -> batch

Return a batch whose arrays nobody else holds: a copy on the CPU, where moving copies
nothing.
"""
copy_if_shared(device, batch) = batch
copy_if_shared(::CPUDevice, batch) = deepcopy(batch)

"""
Wait until the device has nothing left to do. The CPU has nothing left when a call returns.
"""
synchronize(device) = nothing

"""
Return the most bytes in use on the device so far, or `nothing` if it has no such counter.
"""
peak_memory(device) = nothing

"""
Collect the garbage from before an epoch. On a GPU `free_memory` does the rest. On a CPU
Julia decides, as in a user's loop: after a collection that was asked for, one of its own
within the next steps was a full one, which made an epoch of seven steps a fifth longer.
"""
collect_garbage(device) = GC.gc(false)
collect_garbage(::CPUDevice) = nothing

"""Give unused memory back to the system, or to other processes that use the device."""
free_memory(device) = GC.gc()

"""Return what a reader should know of the device, such as its name and its CUDA version."""
device_details(device) = Dict{String,String}()
