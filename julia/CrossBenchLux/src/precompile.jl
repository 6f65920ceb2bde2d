# Compile when the package is installed what the first epoch of each model of the catalogue needs.
@setup_workload begin
    include_dependency(CATALOGUE)
    build_one(description, precision) = (build_workload(description, "cpu", precision),)
    @compile_workload begin
        train_catalogue(build_one)
    end
end
