# What Julia reaches without a model: the two edges of the roofline, each a function to be timed.

"""A function that multiplies two matrices, on all the threads: BLAS may have one in training."""
function matrix_product(device, n)
    a, b, product = device((rand(Float32, n, n), rand(Float32, n, n), zeros(Float32, n, n)))
    return function ()
        before = BLAS.get_num_threads()
        BLAS.set_num_threads(Threads.nthreads())
        mul!(product, a, b)
        BLAS.set_num_threads(before)
        synchronize(device)
    end
end

"""A function that copies an array of `n` numbers, on all the threads."""
function array_copy(device, n)
    source, target = device((rand(Float32, n), zeros(Float32, n)))
    return function ()
        copy_all!(target, source)
        synchronize(device)
    end
end

copy_all!(target, source) = copyto!(target, source)
function copy_all!(target::Array, source::Array)
    parts = Iterators.partition(eachindex(source), cld(length(source), Threads.nthreads()))
    @sync for part in parts
        Threads.@spawn copyto!(target, first(part), source, first(part), length(part))
    end
end
