# Rules of optimizers that Optimisers.jl has not got: each is chained with a `Descent`, which has the
# learning rate. A program has it word for word, each block for itself. All arrays begin with zeros.

"""Add up gradients, without the learning rate: a changed one holds for the whole sum."""
struct Velocity{R} <: Optimisers.AbstractRule
    rho::R
    nesterov::Bool
end
Optimisers.init(::Velocity, x::AbstractArray) = zero(x)
function Optimisers.apply!(rule::Velocity, velocity, x::AbstractArray{T}, dx) where {T}
    rho = T(rule.rho)
    @. velocity = rho * velocity + dx
    return velocity, rule.nesterov ? (@. dx + rho * velocity) : velocity
end

"""Take the sign of a momentum (Chen et al., 2023)."""
struct LionSign{B} <: Optimisers.AbstractRule
    beta::B
end
Optimisers.init(::LionSign, x::AbstractArray) = zero(x)
function Optimisers.apply!(rule::LionSign, momentum, x::AbstractArray{T}, dx) where {T}
    b1, b2 = T.(rule.beta)
    step = @. sign(b1 * momentum + (1 - b1) * dx)
    @. momentum = b2 * momentum + (1 - b2) * dx
    return momentum, step
end

"""Divide by the root of the sum of squares, which begins with `initial`: Adagrad."""
struct RootOfSum{V} <: Optimisers.AbstractRule
    initial::V
    epsilon::V
end
Optimisers.init(::RootOfSum, x::AbstractArray) = zero(x)
function Optimisers.apply!(rule::RootOfSum, sums, x::AbstractArray{T}, dx) where {T}
    initial, epsilon = T(rule.initial), T(rule.epsilon)
    @. sums += abs2(dx)
    return sums, @. dx / (sqrt(initial + sums) + epsilon)
end
