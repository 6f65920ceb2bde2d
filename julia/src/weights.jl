# Canonical weights are torch's, seen here with their axes reversed: a kernel (O, I, H, W) arrives
# as (W, H, I, O), a dense weight (out, in) as (in, out).

# Flux convolves, the others cross-correlate: the kernel is flipped along both its axes.
native(::Conv, weight::AbstractArray{<:Any,4}) = reverse(weight; dims = (1, 2))
native(::Dense, weight::AbstractMatrix) = permutedims(weight)
native(_, bias::AbstractVector) = bias

# Each of these is its own inverse.
canonical(layer, array) = native(layer, array)

"""
    arrays(model, names) -> Dict

The parameters of `model`, or of a gradient of the same form, by canonical name ("conv1.weight"),
in their canonical order of values and on the CPU.
"""
function arrays(model, names, values = model)
    found = Dict{String,Array}()
    for (name, index) in names, field in (:weight, :bias)
        layer = model.layers[index]
        hasproperty(layer, field) || continue
        array = getproperty(values.layers[index], field)
        found["$name.$field"] = Array(canonical(layer, cpu(array)))
    end
    return found
end

"""Copy canonical `values` into the model's parameter of that name ("conv1.weight")."""
function load!(model, names, name, values)
    layer_name, field = split(name, '.')
    layer = model.layers[names[layer_name]]
    parameter = getproperty(layer, Symbol(field))
    expected = size(canonical(layer, parameter))
    size(values) == expected || error("$name has the size $(size(values)), not $expected")
    copyto!(parameter, native(layer, values))
    return nothing
end
