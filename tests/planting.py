"""Plant a fault in an adapter, and in its variants, which have parts of it under the same names."""

import sys
from importlib import import_module

from crossbench import adapters


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

    def kernels(self, workload, change):
        """Change the kernels on the way in only: as where an adapter maps them wrongly."""
        original = workload.load_weights

        def load_weights(self, weights):
            original(self, {n: change(w) if w.ndim == 4 else w for n, w in weights.items()})

        self.method(workload, "load_weights", load_weights)
