"""An adapter's programs of the parts of a step run, and hold what the row of the same work runs.
--adapters names others.
"""

import ast
import os
import re
import runpy
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_models import SMALL_MODELS

from crossbench import adapters, models
from crossbench.models.parts import parts
from crossbench.source.part_programs import CALLS, WARM_UP, part_training
from crossbench.workload import Job

BATCH, THREADS = 4, 2
ROWS_OWN = ("torch", "jax", "keras")
"""Frameworks whose rows run the program's module."""


def forms(part):
    """Return what decides how a program is written around the model, the loss and the optimizer,
    which are written as a row's.
    """
    work, model = part.whole, part.whole.model
    rule = model.optimizer if work.trains else None
    return {
        ("inputs", len(model.input_shape), bool(model.vocabulary)),
        ("labels", len(model.label_shape), type(model.loss)),
        ("step", rule and (bool(rule.schedule), bool(rule.clip_norm))),
        ("is a residual", part.name.startswith("residual")),
    }


def cases():
    """Return parts of the small models that together have each form."""
    found, seen = [], set()
    for model in SMALL_MODELS.values():
        for part in parts(model):
            if not forms(part) <= seen:
                seen |= forms(part)
                found.append(pytest.param(model, part, id=f"{model.name}-{part.name}"))
    return found


CASES = cases()
pytestmark = pytest.mark.programs


def programs(adapter, model, part):
    """Yield each piece of work of a part, with its program."""
    for work in part.works:
        yield work, adapter.programs.part_program(part_training(part, work, model, BATCH, THREADS))


FOR_A_PROCESS = ("tf.config.threading", 'jax.config.update("jax_platforms"', "os.environ")
"""How the lines begin that only a process's first program may have, or that others would feel."""


def run_python(file):
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith(FOR_A_PROCESS)))
    return runpy.run_path(str(file))["seconds"]


def run_julia(file):
    """Julia starts with the row's threads."""
    os.environ |= adapters.get("flux").environment("cpu", THREADS)
    from juliacall import Main

    module = Main.seval("Module()")
    Main.Base.include(module, str(file))
    return np.asarray(Main.collect(module.seconds))


RUNNERS = {"flux": run_julia, "lux": run_julia}


@pytest.mark.short(adapter_name=("torch",))
@pytest.mark.parametrize(("model", "part"), CASES)
def test_the_programs_of_a_part_time_what_the_row_times(
    adapter, adapter_name, model, part, tmp_path, capfd, monkeypatch
):
    """They run, and hold the classes, the functions and the model of the row's module, where the
    row has one.
    """
    monkeypatch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "tensorflow"))
    for work, text in programs(adapter, model, part):
        if adapter_name in ROWS_OWN:
            own, module = list(blocks(text)), of_row(adapter, work)
            if adapter_name == "jax":  # its class is in the module, and the worker makes one
                own = [block for block in own if not block.startswith("model = ")]
            assert own
            assert [block for block in own if block not in module] == []
        file = tmp_path / f"program{adapter.program_suffix}"
        file.write_text(text)
        seconds = RUNNERS.get(adapter_name, run_python)(file)
        assert len(seconds) == WARM_UP + CALLS
        assert re.search(r"^\d+\.\d{3} ms, \w+ \d+\.\d+", capfd.readouterr().out, re.MULTILINE)


def of_row(adapter, work):
    """Return the text of the module that a row of this work runs."""
    workload = adapter.build(Job(work.model, "cpu", THREADS, "float32"))
    module = getattr(workload, "training", None) or workload.module
    return Path(module.__file__).read_text()


def blocks(text):
    """Yield the classes and functions of a program, and the statement that makes the model."""
    for node in ast.parse(text).body:
        is_made = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "model"
        if isinstance(node, ast.ClassDef | ast.FunctionDef) or is_made:
            start = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
            yield "\n".join(text.splitlines()[start - 1 : node.end_lineno])


FRAMEWORKS = {
    "torch": {"torch"},
    "jax": {"jax", "flax", "optax"},
    "keras": {"keras", "tensorflow"},
    "flux": {"Flux"},
    "lux": {"Lux", "NNlib", "OneHotArrays", "Optimisers", "Zygote"},
}
STANDARD = {"os", "time", "typing", "numpy", "LinearAlgebra", "Printf", "Random", "Statistics"}
"""NumPy, and what a program needs of the standard library."""


def imported(text, suffix):
    """Return the packages that a program imports."""
    if suffix == ".jl":
        named = re.findall(r"^using ([^:\n]+)", text, re.MULTILINE)
        return {name for names in named for name in names.split(", ")}
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_programs_are_formatted_and_need_their_framework_alone(framework, tmp_path):
    """As ruff formats by default; Julia's lines fit into JuliaFormatter's 92 characters. In Python
    no name is undefined, and no import unused.
    """
    adapter = adapters.get(framework)
    catalogue = [models.get(name) for name in models.names()]
    for model in (*catalogue, *SMALL_MODELS.values()):
        for part in parts(model):
            for work, text in programs(adapter, model, part):
                without = "" if work is part.whole else "_without"
                name = f"{model.name}_{part.name}{without}"
                found = imported(text, adapter.program_suffix)
                assert found <= STANDARD | FRAMEWORKS[framework], name
                assert found & FRAMEWORKS[framework], name
                assert text.isascii(), name
                if adapter.program_suffix == ".jl":
                    assert max(map(len, text.splitlines())) <= 92, name
                else:
                    (tmp_path / f"{name}.py").write_text(text)
    check = ["check", "--select", "F,I"]
    for command in (["format", "--diff"], check) if adapter.program_suffix == ".py" else ():
        words = ["ruff", *command, "--isolated", str(tmp_path)]
        run = subprocess.run(words, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
