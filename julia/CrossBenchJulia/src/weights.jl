# Canonical weights are torch's, seen here with their axes reversed: a kernel (O, I, H, W)
# arrives as (W, H, I, O), that of a sequence (O, I, L) as (L, I, O), a dense weight (out, in) as
# (in, out).

"""
    swap_axes(change, array) -> array

Convert a canonical parameter to the form that the frameworks in Julia have it in, or back: it is
its own inverse.
"""
swap_axes(::Val{:same}, array) = array
swap_axes(::Val{:flipped}, kernel) = reverse(kernel; dims = Tuple(1:(ndims(kernel) - 2)))
swap_axes(::Val{:transposed}, matrix) = permutedims(matrix)

"""Convert an array of the form of a parameter to its canonical form."""
function to_canonical(workload, name, array)
    place = workload.places[name]
    return reshape(swap_axes(place.change, array), place.size)
end

is_trained(workload, name) = workload.places[name].is_trained

"""
    lookup(tree, path) -> layer or array

Return what is at the end of the path in a model, or in its gradient, where it is `nothing`
if there is no gradient.
"""
lookup(tree, path) = foldl(child, path; init = tree)

child(tree, field::Symbol) = getproperty(tree, field)
child(tree, index::Int) = tree[index]
child(::Nothing, ::Symbol) = nothing
child(::Nothing, ::Int) = nothing

"""
Return the parameters by name ("conv1.weight"), as canonical arrays on the CPU. One that needs
no conversion is the model's own array: a copy of a large one would make the garbage collector
run when the weights are read after an epoch, as if the epoch were not over.
"""
weights(workload) = Dict{String,Array}(
    name => to_canonical(workload, name, cpu_device()(parameter(workload, name))) for
    name in keys(workload.places)
)

"""
Return the gradients of the trained parameters by name, as canonical arrays on the CPU.
"""
gradient_arrays(workload, gradient) = Dict{String,Array}(
    name => to_array(workload, name, gradient_array(workload, gradient, name)) for
    name in keys(workload.places) if is_trained(workload, name)
)

to_array(workload, name, array) =
    Array(to_canonical(workload, name, cpu_device()(array)))

"""
    gradient_array(workload, gradient, name) -> array

Return the gradient of a parameter, in the model's own form: the sum over all its places.
"""
function gradient_array(workload, gradient, name)
    found = (lookup(gradient, path) for path in workload.places[name].paths)
    parts = [part for part in found if !isnothing(part)]
    # Zygote's gradient of a parameter that the loss does not depend on is `nothing`, not zeros
    isempty(parts) && return zero(parameter(workload, name))
    return length(parts) == 1 ? only(parts) : sum(parts)
end

"""
Copy canonical `values` into the model's parameter of that name ("conv1.weight"). On the CPU it
allocates nothing: garbage of a load would be collected in the epochs that follow.
"""
function load_weight!(workload, name, values)
    (; size, change) = workload.places[name]
    found = Base.size(values)
    found == size || error("$name has the size $found, not $size")
    copy_swapped!(change, parameter(workload, name), values)
    return nothing
end

copy_swapped!(change, array, values) = copyto!(array, swap_axes(change, values))
copy_swapped!(::Val{:transposed}, array::Matrix, values::Matrix) =
    permutedims!(array, values, (2, 1))
copy_swapped!(::Val{:flipped}, array::Array{<:Any,4}, values::Array) =
    copyto!(array, view(values, axes(values, 1)[end:-1:1], axes(values, 2)[end:-1:1], :, :))
copy_swapped!(::Val{:flipped}, array::Array{<:Any,3}, values::Array) =
    copyto!(array, view(values, axes(values, 1)[end:-1:1], :, :))

"""
    wrap(type, address, size) -> Array

Return a Julia array on memory that the caller keeps alive for as long as the array is used.
`type` is NumPy's name of the element type ("float32").
"""
wrap(type::AbstractString, address::Integer, size::Tuple) =
    unsafe_wrap(Array, Ptr{ELTYPES[type]}(UInt(address)), Int.(size))
