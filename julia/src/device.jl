# Where a workload is. The GPU's methods are in ext/CUDAExt.jl, loaded when CUDA.jl and cuDNN are.

"""
    mover(name) -> device

A function that moves arrays, and whatever holds arrays, to the device of that name, and keeps their
element type: Float64 stays Float64.
"""
mover(name::AbstractString) = mover(Val(Symbol(name)))
mover(::Val{:cpu}) = cpu_device()
mover(::Val{D}) where {D} = error("the device $D needs CUDA.jl and cuDNN, which are not loaded")

"""
    moved(device, x) -> array on the device

`device(x)`, of the same element type, or an error.
"""
function moved(device, x)
    there = device(x)
    eltype(there) == eltype(x) || error("$device makes $(eltype(there)) of $(eltype(x))")
    return there
end

"""What a batch on the device is made of: a copy. On the CPU moving makes none."""
owned(device, batch) = batch
owned(::CPUDevice, batch) = deepcopy(batch)

"""The moved model, with a generator in each dropout that can draw on the device. On a GPU that is the
device's default one, which Flux's own default has become; on the CPU each dropout gets its own, which
a copy of the model does not share."""
with_generators(device, model) = model
with_generators(::CPUDevice, model) = fmap(model; exclude = part -> part isa Dropout) do part
    part isa Dropout ? Dropout(part.p, part.dims, part.active, Xoshiro(0)) : part
end

"""Wait until the device has nothing left to do. The CPU has, when a call returns."""
synchronize(device) = nothing

"""The most bytes in use on the device, or `nothing` where there is no such counter."""
peak_memory(device) = nothing

"""Collect the garbage of what came before an epoch. On a GPU `free_memory` does the rest."""
collect_garbage(device) = GC.gc(false)
collect_garbage(::CPUDevice) = GC.gc()

"""Give back the memory that nothing uses, to the system or to the others that use the device."""
free_memory(device) = GC.gc()

"""What a reader should know of the device, by name."""
device_details(device) = Dict{String,String}()
