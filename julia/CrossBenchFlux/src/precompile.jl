# Compile when the package is installed what the first epoch of each model of the catalogue needs,
# in both variants.
@setup_workload begin
    catalogue = joinpath(@__DIR__, "models.json")
    include_dependency(catalogue)
    function build_both(row, precision)
        idiomatic = build_workload(row, "cpu", precision)
        return (idiomatic, tuned(idiomatic))
    end
    @compile_workload begin
        train_catalogue(build_both, catalogue)
    end
end
