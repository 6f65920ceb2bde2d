"""Test which jobs a sweep's file asks for, and what is said of a wrong word."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbench import models
from crossbench.inputs.errors import SpecError
from crossbench.sweeps.folder import Folder
from crossbench.sweeps.jobs import make_jobs, product, read

ROOT = Path(__file__).parents[2]
SWEEP = """
model = ["lenet", "mnist_mlp"]
frameworks = "torch,jax,flux"
seed = [0, 1]
data = "auto"
rounds = 6
machines = "each"
workers = ["gpu-*", "big"]
resources = {GPU = 1}
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "sweep.toml"
        path.write_text(text)
        return path

    return write


def test_the_jobs_are_the_product_of_the_lists(file):
    sweep = read(file(SWEEP))
    assert [(job.arguments["model"], job.arguments["seed"]) for job in sweep.jobs] == [
        ("lenet", 0),
        ("lenet", 1),
        ("mnist_mlp", 0),
        ("mnist_mlp", 1),
    ]
    assert {job.arguments["frameworks"] for job in sweep.jobs} == {"torch,jax,flux"}
    assert (sweep.machines, sweep.workers) == ("each", ("gpu-*", "big"))
    assert sweep.resources == {"GPU": 1}
    [job] = read(file("batch_size = [[2, 8]]")).jobs
    assert job.arguments == {"batch_size": [2, 8]}  # a list in a list is one value


def test_tables_have_words_of_their_own(file):
    text = """
    rounds = 6
    seed = 1
    [[jobs]]
    model = ["lenet", "mnist_mlp"]
    [[jobs]]
    model = "resnet63"
    seed = 2
    """
    jobs = read(file(text)).jobs
    assert [(j.arguments["model"], j.arguments["seed"]) for j in jobs] == [
        ("lenet", 1),
        ("mnist_mlp", 1),
        ("resnet63", 2),
    ]
    assert all(job.arguments["rounds"] == 6 for job in jobs)


@pytest.mark.parametrize(
    ("line", "number", "message"),
    [
        ("seed = -1", 5, "seed must be a whole number"),
        ("modle = 1", 5, "there is no argument 'modle': write model"),
        ("machines = 1", 5, "machines is of the whole sweep: write it above the tables [[jobs"),
        ("seed = 0", None, "2 jobs are the same"),
    ],
)
def test_a_wrong_word_of_a_table_is_named_with_its_line(file, line, number, message):
    path = file(f"rounds = 2\n[[jobs]]\nseed = 0\n[[jobs]]\n{line}\n")
    with pytest.raises(SpecError) as error:
        read(path)
    place = f"{path}, line {number}: " if number else f"{path}: "
    assert str(error.value).startswith(place)
    assert message in str(error.value)


@pytest.mark.parametrize("line", ["jobs = [1]", "[jobs]"])
def test_tables_that_are_none_are_refused(file, line):
    with pytest.raises(SpecError, match=r"jobs must be tables, each below a line \[\[jobs\]\]"):
        read(file(line))


def test_the_name_of_a_job_says_what_is_its_own():
    first, second = make_jobs(product({"model": "lenet", "seed": [0, 1], "rounds": 3}))
    assert first.name == f"lenet-seed-0-{first.digest}"
    assert second.name == f"lenet-seed-1-{second.digest}"
    words = {"model": ["mlp7_relu", "lenet"], "machine": ["m" * 200, "n" * 200]}
    for job in make_jobs(product(words)):  # a long name has the model and the digest
        assert len(job.name) <= 120
        assert job.name.startswith(f"{job.arguments['model']}-")
        assert job.name.endswith(f"-{job.digest}")


def test_a_job_keeps_its_digest_when_others_join_and_its_data_with_other_threads():
    [alone] = make_jobs([{"model": "lenet", "rounds": 3}])
    among, _ = make_jobs([{"rounds": 3, "model": "lenet"}, {"model": "mnist_mlp"}])
    assert alone.digest == among.digest
    one, two, other = make_jobs(
        [{"threads": 1}, {"threads": 2, "frameworks": "torch", "rounds": 1}, {"batches": 3}]
    )
    assert one.data_key == two.data_key != other.data_key


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("seed = []", "seed is an empty list: there is no job to run"),
        ("seed = [0, 1, 0]", "seed has 0 more than once"),
        ("seed = [0, -1]", "seed must be a whole number"),
        ('frameworks = "torch,tensorflou"', "there is no framework 'tensorflou'"),
        ('machines = "all"', "machines must be any or each, not 'all'"),
        ("workers = [1]", "workers must be"),
        ("workers = []", "workers must be"),
        ('resources = "GPU"', "resources must be amounts by name"),
        ("resources = {GPU = 0}", "resources: GPU must be a finite number over 0"),
        ('json = "x.json"', "there is no argument 'json'"),
    ],
)
def test_each_wrong_word_is_named_with_its_line(file, line, message):
    path = file(f"# a sweep\nrounds = 2\n{line}\n")
    with pytest.raises(SpecError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}, line 3: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["seed = = 1", "\0", f"a = {'[' * 100_000}"])
def test_a_file_that_is_not_toml_is_refused_in_a_line(file, text):
    with pytest.raises(SpecError, match=r"is not TOML: .*") as error:
        read(file(text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "why"),
    [("nowhere.toml", "No such file"), ("/dev/zero", "it is a device"), (".", "it is a directory")],
)
def test_a_file_that_cannot_be_read_is_named(path, why):
    with pytest.raises(SpecError, match=f"^{path} cannot be read: {why}"):
        read(path)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([], "at least one job"),
        (["lenet"], "a job must be a mapping"),
        ([{"model": models.get("lenet")}], "name a model as FILE.py:NAME"),
    ],
)
def test_wrong_jobs_are_refused_in_a_line(jobs, message):
    with pytest.raises(SpecError, match=message):
        make_jobs(jobs)


@pytest.mark.parametrize("edition", sorted((ROOT / "results").glob("*.toml")), ids=lambda p: p.name)
def test_what_is_published_can_be_asked_for(edition):
    jobs = read(edition).jobs
    assert all(job.arguments["data"] == "synthetic" for job in jobs), "anybody can run it"


def test_the_edition_has_every_model_of_the_catalogue():
    jobs = read(ROOT / "results" / "edition.toml").jobs
    assert {job.arguments["model"] for job in jobs} == set(models.names())


def test_the_results_of_an_edition_are_of_its_jobs():
    folder = Folder(ROOT / "results" / "2026-11-epyc")
    assert folder.results()
    folder.check(read(ROOT / "results" / "2026-11-epyc.toml").jobs)
