"""The processor's name."""

import pytest

from crossbench.host import machine

EPYC = "processor\t: {}\ncpu family\t: 26\nmodel\t\t: {}\nmodel name\t: AMD EPYC\nstepping\t: 1\n\n"


@pytest.mark.parametrize(
    ("info", "name"),
    [
        (EPYC.format(0, 2) + EPYC.format(1, 3), "AMD EPYC (family 26, model 2)"),
        ("processor\t: 0\nmodel name\t: ARMv8\n", "ARMv8"),
    ],
)
def test_processors_of_one_name_differ_by_family_and_model(info, name, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "cpuinfo")
    machine.CPU_INFO.write_text(info)
    assert machine.describe().cpu == name
