"""Holds what the adapters of frameworks in Julia share; it names no framework.

It finds, installs and starts Julia, has the workload that calls it, and writes programs. The Julia
side is under julia/. CrossBenchJulia evaluates the text of a row (src/workload.jl), says there what
a framework must define, and has the layers and rules that both lack (src/layers.jl, src/rules.jl)
and what a GPU needs (ext/). CrossBenchFlux and CrossBenchLux take the steps (src/training.jl), and
list what is compiled at installation (src/models.json).
"""
