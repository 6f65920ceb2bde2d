"""Variants of a framework, and adapters in a file: from the name to the row."""

import platform
from types import SimpleNamespace

import pytest
from samples import comparison, result
from small_models import TINY

import crossbench
from crossbench import adapters, load, plan
from crossbench.commands.doctor import report
from crossbench.inputs.errors import SpecError
from crossbench.report.details import all_details
from crossbench.report.terminal import text
from crossbench.results.rows import rows
from crossbench.spec import make_spec
from crossbench.workload import IDIOMATIC, Variant

OWN_LOOP = """
import os
from crossbench.adapters.reference import ReferenceAdapter, ReferenceWorkload

class Mine(ReferenceAdapter):
    pass

ADAPTER = Mine()
"""
CHOICES = """
class Chooser(ReferenceWorkload):
    chosen = {}

    def train_epoch(self):
        self.chosen = {"process": str(os.getpid()), "pieces": "8"}
        return super().train_epoch()

    def details(self):
        return super().details() | self.chosen

Mine.build = lambda self, job: Chooser(job)
"""


@pytest.fixture
def own_file(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_LOOP)
    return str(tmp_path / "mine.py")


def names(frameworks=None, devices="cpu", **arguments):
    """Return the implementations of the plan's cells."""
    return [c.implementation for c in plan.make_plan(make_spec(frameworks, devices, **arguments))]


def test_variants_are_those_that_a_framework_named_without_one_has():
    assert names("torch,jax,reference") == ["torch", "jax", "reference"]  # the idiomatic ones
    assert names("torch,jax", variants="scan,tuned") == ["torch:tuned", "jax:scan", "jax:tuned"]
    assert names("torch:compile,jax", variants="tuned") == ["torch:compile", "jax:tuned"]
    assert names("jax:idiomatic,jax", variants=["tuned"]) == ["jax", "jax:tuned"]
    found = names("torch", variants="all")
    assert found[0] == "torch"
    assert "torch:tuned" in found
    assert "torch:graphs" not in found  # the CPU does not have it


def test_a_named_variant_that_the_device_does_not_have_has_a_reason():
    (cell,) = plan.make_plan(make_spec("torch:graphs", "cpu"))
    assert (cell.name, cell.title, cell.named) == ("torch:graphs cpu", "PyTorch", True)
    assert cell.unavailable.startswith(
        "torch has no variant graphs on cpu: choose from idiomatic, malloc, compile"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frameworks": "torch:fast"}, "torch has no variant 'fast': choose from idiomatic, mal"),
        ({"frameworks": "jax", "variants": "compile"}, "no variant 'compile': choose from all, id"),
        ({"frameworks": "jax", "variants": ""}, "there is no variant ''"),
        ({"frameworks": "jax", "variants": []}, "name at least one variant of all, idiomatic"),
        ({"frameworks": "jax", "baseline": "jax:tuned"}, "'jax:tuned' is not run: choose from jax"),
        ({"frameworks": "mine.py"}, "an adapter in a file is named as mine.py:ADAPTER"),
    ],
)
def test_a_wrong_variant_gets_one_line(arguments, message):
    with pytest.raises(SpecError) as caught:
        make_spec(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_variants_that_no_device_has_get_one_line(run):
    with pytest.raises(SpecError, match="none of torch:graphs runs on cpu: `python -m "):
        run("torch", devices="cpu", variants="graphs")


def test_a_baseline_may_be_a_variant():
    spec = make_spec("torch", variants="idiomatic,tuned", baseline="torch:tuned")
    assert spec.settings.baseline == "torch:tuned"
    assert make_spec("torch", baseline="torch:idiomatic").settings.baseline == "torch"


@pytest.mark.long
def test_malloc_is_the_idiomatic_code_in_another_environment(monkeypatch):
    """The large arrays of an epoch are not given back to the kernel."""
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "65536")  # the row's own value wins
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc, which the variant needs")
    asked = {"model": "lenet", "data": "synthetic", "batch_size": 200, "batches": 5, "rounds": 1}
    found = crossbench.run("torch", "cpu", variants="idiomatic,malloc", **asked)
    idiomatic, kept = found.results
    assert found.complete, str(found)
    assert kept.details == idiomatic.details
    assert kept.epochs[0].losses == idiomatic.epochs[0].losses
    given_back, others = (found.page_fault_bytes(r) for r in (idiomatic, kept))
    assert given_back > 5 * 200 * 16 * 28 * 28 * 4  # the first convolution's outputs in each step
    assert others < given_back / 10
    assert found.machine.environment["MALLOC_MMAP_MAX_"] == "65536"
    assert "; MALLOC_MMAP_MAX_=65536" in str(found).replace("\n", " ")
    assert "MALLOC_MMAP_MAX_=65536" in report()


def test_malloc_needs_glibc(monkeypatch):
    monkeypatch.setattr(plan.platform, "libc_ver", lambda: ("", ""))
    (cell,) = plan.make_plan(make_spec("torch:malloc", "cpu"))
    assert cell.unavailable.startswith("torch:malloc needs glibc")


def test_an_adapter_in_a_file_is_a_row(own_file, run):
    found = run(["reference", f"{own_file}:ADAPTER"], model=TINY)
    assert found.complete
    own = found.results[1].cell
    assert own.framework == f"{own_file}:ADAPTER"
    assert own.title == "NumPy reference (mine.py)"
    assert "NumPy reference (mine.py)" in str(found)


def test_a_variant_that_an_adapter_in_a_file_lacks_gets_one_line(own_file):
    with pytest.raises(SpecError, match=r"mine\.py:ADAPTER has no variant 'fast': choose from "):
        make_spec(f"{own_file}:ADAPTER:fast")


@pytest.mark.long
def test_what_a_variant_chose_is_kept_and_shown(tmp_path, run, monkeypatch):
    """Each different value once, and not without end."""
    monkeypatch.setattr("crossbench.engine.cell_round.MAX_CHOICES", 2)
    (tmp_path / "chooser.py").write_text(OWN_LOOP + CHOICES)
    found = run(f"{tmp_path}/chooser.py:ADAPTER", rounds=3, json=tmp_path / "r.json")
    assert found.complete
    choices = found.results[0].choices
    assert choices["pieces"] == ["8"]
    assert len(set(choices["process"])) == 2
    assert "pieces 8" in all_details(found)
    assert " or ".join(choices["process"]) in all_details(found)
    assert load(tmp_path / "r.json") == found


@pytest.mark.parametrize("odd", [None, {"tuned": Variant("t")}, {IDIOMATIC: "a line"}])
def test_variants_that_are_none_get_one_line(monkeypatch, odd):
    monkeypatch.setattr(adapters, "get", lambda name: SimpleNamespace(variants=odd))
    with pytest.raises(SpecError, match="must be a dict of Variants by name, with one that is nam"):
        make_spec("odd")


ROWS = (
    result("torch", [1.0, *[0.5] * 8]),
    result("torch:tuned", [3.0, *[0.2] * 8]),
    result("jax", [4.0, *[1.5] * 8]),
)


def test_the_ratio_to_the_idiomatic_row():
    found = {row.framework + row.variant: row for row in rows(comparison(*ROWS))}
    assert found["torchtuned"].idiomatic_ratio.median == pytest.approx(0.4)
    assert found["torchidiomatic"].idiomatic_ratio is None
    assert found["jaxidiomatic"].idiomatic_ratio is None
    assert found["jaxidiomatic"].ratio.median == pytest.approx(7.5)  # against the fastest of all


def test_the_tables_have_a_column_for_variants_only_where_there_is_one():
    variants, none = comparison(*ROWS), comparison(ROWS[0], ROWS[2])
    for draw in (text, all_details):
        assert "variant" in draw(variants)
        assert "× idiomatic" in draw(variants)
        assert "variant" not in draw(none)
    assert "× idiomatic" not in text(none)
    verdict = "Torch tuned is fastest on the CPU: of its seconds Torch takes 2.50×, Jax 7.50×"
    assert verdict in text(variants)
