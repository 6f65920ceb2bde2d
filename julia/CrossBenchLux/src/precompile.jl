# Compile when the package is installed what the first epoch of each model of the catalogue needs.
@setup_workload begin
    catalogue = joinpath(@__DIR__, "models.json")
    include_dependency(catalogue)
    build_one(row, precision) = (build_workload(row, "cpu", precision),)
    @compile_workload begin
        train_catalogue(build_one, catalogue)
    end
end
