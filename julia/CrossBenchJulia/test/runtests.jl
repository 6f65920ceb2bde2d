using CrossBenchJulia
using CrossBenchJulia: CrossBenchJulia, wrap
using Test

@testset "CrossBenchJulia" begin
    @testset "an array is wrapped, not copied" begin
        memory = collect(1.0:6.0)
        GC.@preserve memory begin
            wrapped = wrap("float64", UInt(pointer(memory)), (2, 3))
            wrapped[2, 3] = 60
        end
        @test memory[6] == 60
        bits, ids = [true, false], Int32[3, 4]
        GC.@preserve bits ids begin
            @test wrap("bool", UInt(pointer(bits)), (2,)) == bits
            @test wrap("int32", UInt(pointer(ids)), (2,)) == ids
        end
    end

    @testset "the functions of the peak" begin
        source, target = rand(Float32, 1001), zeros(Float32, 1001)
        @test CrossBenchJulia.copy_on!(identity, target, source) === target
        @test target == source
        there = CrossBenchJulia.put(identity, source)
        @test there == source
        @test CrossBenchJulia.address(there) != CrossBenchJulia.address(source)
        a, b, product = rand(Float32, 8, 8), rand(Float32, 8, 8), zeros(Float32, 8, 8)
        before = CrossBenchJulia.BLAS.get_num_threads()
        @test CrossBenchJulia.multiply!(identity, product, a, b) === product
        @test product ≈ a * b
        @test CrossBenchJulia.every(product, 3) == product[:, [1, 4, 7]]
        @test CrossBenchJulia.BLAS.get_num_threads() == before
    end

    @testset "BLAS gets the threads unless convolutions use those of Julia" begin
        function blas_threads(convolves)
            CrossBenchJulia.configure_runtime(2; convolves)
            return CrossBenchJulia.BLAS.get_num_threads()
        end
        @test blas_threads(false) == 2
        @test blas_threads(true) == (Threads.nthreads() > 1 ? 1 : 2)
        CrossBenchJulia.BLAS.set_num_threads(1)
    end
end
