# What Julia reaches without a model: the two limits of the roofline, as functions to time.

"""
    matrix_multiplication(device, n) -> function

Return a function that multiplies two Float32 matrices (n, n) on all threads, and waits for
the device. It sets the threads of BLAS itself, which may have one in training.
"""
function matrix_multiplication(device, n)
    a, b, product = device((rand(Float32, n, n), rand(Float32, n, n), zeros(Float32, n, n)))
    return function ()
        before = BLAS.get_num_threads()
        BLAS.set_num_threads(Threads.nthreads())
        mul!(product, a, b)
        BLAS.set_num_threads(before)
        synchronize(device)
    end
end

"""
    array_copy(device, n) -> function

Return a function that copies an array of `n` Float32 numbers on all threads, and waits for
the device.
"""
function array_copy(device, n)
    source, target = device((rand(Float32, n), zeros(Float32, n)))
    return function ()
        copy_all!(target, source)
        synchronize(device)
    end
end

copy_all!(target, source) = copyto!(target, source)
function copy_all!(target::Array, source::Array)
    chunk = cld(length(source), Threads.nthreads())
    @sync for range in Iterators.partition(eachindex(source), chunk)
        Threads.@spawn copyto!(target, first(range), source, first(range), length(range))
    end
end
