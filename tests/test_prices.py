import numpy as np
import pytest

from crossbench.errors import SpecError
from crossbench.prices import parse


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        (None, {}),
        (0.5, {"cpu": 0.5, "gpu": 0.5}),
        ("0.745/h", {"cpu": 0.745, "gpu": 0.745}),
        ("cpu=0.17/h, gpu=0.745", {"cpu": 0.17, "gpu": 0.745}),
        ({"gpu": 2}, {"gpu": 2.0}),
    ],
)
def test_words_and_numbers(price, expected):
    assert parse(price) == expected


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "machines.toml"
    file.write_text("[n1-standard-8]\ncpu = 0.38\ngpu = 0.83\n[empty]\n[yes]\ncpu = true\n")
    (tmp_path / "nested.toml").write_text("a = " + "[" * 100_000)
    return file


def test_a_file_of_machines(file):
    assert parse(f"{file}:n1-standard-8") == {"cpu": 0.38, "gpu": 0.83}


@pytest.mark.parametrize(
    ("price", "message"),
    [
        ("cheap", "'cheap' is no price of an hour: write 0.745/h"),
        ("-1/h", "'-1' is no price"),
        ("tpu=1/h", "there is no device 'tpu' to pay for"),
        ("/not/there.toml:a", "the prices in '/not/there.toml' cannot be read: No such file"),
        ("{file}:m5", "has no machine 'm5': it has n1-standard-8, empty, yes"),
        ("{file}:empty", "has no machine 'empty'"),
        (0, "0 is no price"),
        (float("nan"), "nan is no price"),
        (True, "True is no price"),
        (10**400, "is no price"),
        ({"cpu": "cheap"}, "'cheap' is no price"),
        ({"cpu": None}, "None is no price"),
        ({3: 1.0}, "there is no device 3 to pay for"),
        (object(), "price must be a number, words or a mapping of devices, not <object"),
        ([0.5], r"price must be a number, words or a mapping of devices, not \[0.5\]"),
        ("nul\0.toml:a", "the prices in .* cannot be read: "),
        (f"{'long' * 2000}.toml:a", "the prices in .* cannot be read: File name too long"),
        ("/dev/zero:a", "the prices in '/dev/zero' cannot be read: it is not a regular file"),
        ("{nested}:a", "the prices in .* cannot be read: nested too deeply"),
        ("{file}:yes", "True is no price"),
    ],
)
def test_what_is_no_price_gets_one_line(file, price, message):
    if isinstance(price, str):
        nested = str(file.with_name("nested.toml"))
        price = price.replace("{file}", str(file)).replace("{nested}", nested)
    with pytest.raises(SpecError, match=message) as caught:
        parse(price)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_numbers_of_numpy_are_prices():
    assert parse(np.float32(0.5)) == {"cpu": 0.5, "gpu": 0.5}
