import subprocess
import sys

HEAVY = {"torch", "jax", "flax", "optax", "juliacall", "juliapkg", "numpy", "requests"}


def modules_after(code):
    """Return the top-level modules that are loaded after running the code in a new process."""
    program = f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return {name.partition(".")[0] for name in run.stderr.split()}


def test_help_loads_nothing_heavy():
    code = "import crossbench.cli\ntry: crossbench.cli.main(['--help'])\nexcept SystemExit: pass"
    assert not HEAVY & modules_after(code)


def test_a_plan_imports_no_framework():
    code = "from crossbench import plan, spec; plan.make_plan(spec.make_spec())"
    assert {"numpy"} <= HEAVY & modules_after(code) <= {"numpy", "requests"}


def test_the_public_names():
    import crossbench

    for name in crossbench.__all__:
        assert getattr(crossbench, name).__name__ == name
