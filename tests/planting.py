"""Plant a fault in an adapter, and in its variants, which have parts of it under the same names."""

import sys
from importlib import import_module

from crossbench import adapters
from crossbench.engine import parity
from crossbench.in_julia.dialect import Dialect
from crossbench.in_julia.workload import JuliaWorkload
from crossbench.results.parity import FLOAT64_BOUND, Parity
from crossbench.workload import Job


def modules(package):
    """Return the modules of a package that are imported, and the package."""
    return [m for name, m in list(sys.modules.items()) if f"{name}.".startswith(f"{package}.")]


class Parts:
    """Finds the parts of an adapter by their names, in whichever module they are."""

    def __init__(self, package):
        self.__package = package

    def __getattr__(self, name):
        for module in modules(self.__package):
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"{self.__package} has no {name}")


class Plant:
    """Replaces parts of the adapter that a test is about, until the test is over."""

    def __init__(self, adapter_name, monkeypatch):
        self.framework, self.variant = adapters.split(adapter_name)
        self.monkeypatch = monkeypatch
        self.name = f"crossbench.adapters.{self.framework}"
        self.package = Parts(self.name)
        import_module(f"{self.name}.{self.variant}" if self.variant else self.name)

    def part(self, name, wrong, patch=None):
        """Replace a function or a class of the adapter wherever it goes by that name.

        patch: a monkeypatch to undo it earlier.
        """
        having = [module for module in modules(self.name) if hasattr(module, name)]
        assert having, f"{self.name} has no {name}"
        for module in having:
            (patch or self.monkeypatch).setattr(module, name, wrong)

    def method(self, owner, name, wrong):
        self.monkeypatch.setattr(owner, name, wrong)

    def text(self, old, new):
        """Replace what the source code says that a row runs. Return a list that has an entry once
        that is done.
        """
        done = []

        def changed(text):
            done.extend([old] * (old in text))
            return text.replace(old, new)

        if self.framework in ("flux", "lux"):
            row = Dialect.row
            self.method(Dialect, "row", lambda d: (r := row(d)) | {"text": changed(r["text"])})
        else:
            run = self.package.imported
            self.part("imported", lambda text: run(changed(text)))
        return done

    def in_julia(self, change):
        """Have each workload in Julia changed by this function there, as it is built."""
        original = JuliaWorkload.__init__

        def build(self, job):
            original(self, job)
            import juliacall

            juliacall.Main.seval(f"using {', '.join(self.packages.registered)}")
            juliacall.Main.seval(change)(self.workload)

        self.method(JuliaWorkload, "__init__", build)


def with_other_weights(build, change):
    """Return `build` whose workloads load what `change` makes of the weights.

    They are changed on the way in only: as where an adapter maps them wrongly.
    """

    def build_other(job):
        workload = build(job)
        load = workload.load_weights
        workload.load_weights = lambda weights: load(change(weights))
        return workload

    return build_other


def over_the_bound(build, model, reference, device="cpu"):
    """Return the names of the tensors that are wrong in float64, and check that the proof fails.

    reference: the model's tensors by the reference, computed before the fault was planted there.
    """
    observed = parity.run_workload(build, Job(model, device, 1, "float64"), reference.seed)
    deviations = reference.deviations(observed, "float64")
    assert not Parity(deviations, deviations, reference.forms["float32"]).agrees
    return {n for n, value in deviations.items() if value is None or value > FLOAT64_BOUND}
