"""Plant a fault in an adapter, and in its variants, which have parts of it under the same names."""

import sys
from importlib import import_module

from crossbench import adapters


class Plant:
    """Replaces parts of the adapter that a test is about, until the test is over."""

    def __init__(self, adapter_name, monkeypatch):
        self.framework, self.variant = adapters.split(adapter_name)
        self.monkeypatch = monkeypatch
        self.package = import_module(f"crossbench.adapters.{self.framework}")
        if self.variant:
            import_module(f"{self.package.__name__}.{self.variant}")

    def part(self, name, wrong):
        """Replace a function or a class of the adapter wherever it goes by that name."""
        for path, module in list(sys.modules.items()):
            if f"{path}.".startswith(f"{self.package.__name__}.") and hasattr(module, name):
                self.monkeypatch.setattr(module, name, wrong)

    def method(self, owner, name, wrong):
        self.monkeypatch.setattr(owner, name, wrong)

    def kernels(self, workload, change):
        """Change the kernels on the way in only: as where an adapter maps them wrongly."""
        original = workload.load_weights

        def load_weights(self, weights):
            original(self, {n: change(w) if w.ndim == 4 else w for n, w in weights.items()})

        self.method(workload, "load_weights", load_weights)
