# Compile when the package is installed what the first epoch of each model of the catalogue needs,
# in both variants.
@setup_workload begin
    include_dependency(CATALOGUE)
    function build_both(description, precision)
        idiomatic = build_workload(description, "cpu", precision)
        return (idiomatic, TunedWorkload(idiomatic))
    end
    @compile_workload begin
        train_catalogue(build_both)
    end
end
