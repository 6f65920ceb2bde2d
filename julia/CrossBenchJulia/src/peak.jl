# What Julia reaches without a model: the two limits of the roofline, on arrays of the device.

"""
    put(device, array) -> array in memory of its own on the device
"""
function put(device, array)
    there = to_device(device, copy(array))
    synchronize(device)
    return there
end

"""Return every `step`-th entry along the last axis of an array, on the host."""
every(array, step) = Array(array[ntuple(_ -> :, ndims(array) - 1)..., 1:step:end])

"""Return the address of an array's memory."""
address(array) = Int(UInt(pointer(array)))

"""
    multiply!(device, product, a, b) -> product

Multiply two Float32 matrices (n, n) on all threads, and wait for the device. It sets the
threads of BLAS itself, which may have one in training.
"""
function multiply!(device, product, a, b)
    before = BLAS.get_num_threads()
    BLAS.set_num_threads(Threads.nthreads())
    mul!(product, a, b)
    BLAS.set_num_threads(before)
    synchronize(device)
    return product
end

"""
    copy_on!(device, target, source) -> target

Copy an array of Float32 numbers on all threads, and wait for the device.
"""
function copy_on!(device, target, source)
    copy_all!(target, source)
    synchronize(device)
    return target
end

copy_all!(target, source) = copyto!(target, source)
function copy_all!(target::Array, source::Array)
    chunk = cld(length(source), Threads.nthreads())
    @sync for range in Iterators.partition(eachindex(source), chunk)
        Threads.@spawn copyto!(target, first(range), source, first(range), length(range))
    end
    return target
end
