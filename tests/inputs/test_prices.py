import numpy as np
import pytest

from crossbench.inputs.errors import SpecError
from crossbench.inputs.prices import parse


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        (None, {}),
        (0.5, {"cpu": 0.5, "gpu": 0.5}),
        ("0.745/h", {"cpu": 0.745, "gpu": 0.745}),
        ("cpu=0.17/h, gpu=0.745", {"cpu": 0.17, "gpu": 0.745}),
        ({"gpu": 2}, {"gpu": 2.0}),
        (np.float32(0.5), {"cpu": 0.5, "gpu": 0.5}),
    ],
)
def test_prices_as_text_number_and_mapping(price, expected):
    assert parse(price) == expected


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "machines.toml"
    file.write_text("[n1-standard-8]\ncpu = 0.38\ngpu = 0.83\n[empty]\n[yes]\ncpu = true\n")
    (tmp_path / "nested.toml").write_text("a = " + "[" * 100_000)
    return file


def test_a_price_from_a_file_of_machines(file):
    assert parse(f"{file}:n1-standard-8") == {"cpu": 0.38, "gpu": 0.83}


@pytest.mark.parametrize(
    ("price", "message"),
    [
        ("cheap", "'cheap' is not a price of an hour: write 0.745/h"),
        ("tpu=1/h", "there is no device 'tpu' to give a price for"),
        ("/not/there.toml:a", "cannot read the prices in '/not/there.toml': No such file"),
        ("{file}:m5", "has no machine 'm5': choose from n1-standard-8, empty, yes"),
        (float("nan"), "nan is not a price"),
        (True, "True is not a price"),
        (10**400, "is not a price"),
        ({"cpu": None}, "None is not a price"),
        ([0.5], r"price must be a number, text or a mapping by device, not \[0.5\]"),
        ("/dev/zero:a", "cannot read the prices in '/dev/zero': it is a device, not a regular"),
        ("{nested}:a", "cannot read the prices in .*: nested too deeply"),
        ("{file}:yes", "True is not a price"),
    ],
)
def test_an_invalid_price_gets_one_line(file, price, message):
    if isinstance(price, str):
        nested = str(file.with_name("nested.toml"))
        price = price.replace("{file}", str(file)).replace("{nested}", nested)
    with pytest.raises(SpecError, match=message) as caught:
        parse(price)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
