"""Limits of control groups of both versions, read from files like the kernel's."""

import os

import pytest

from crossbench.host import control_group
from crossbench.host.machine import cpu_count, usable_cpus
from crossbench.spec import make_spec

VERSION_1 = "nr_periods 9\nnr_throttled 1\nthrottled_time 1500000000\n"
VERSION_2 = "usage_usec 7\nnr_throttled 1\nthrottled_usec 1500000\n"
HYBRID = "4:memory:/m\n1:cpu,cpuacct:/jobs/7\n0::/jobs/8\n"


def version_1(group, quota):
    """Return the files of a group's quota, in microseconds of 100,000."""
    folder = f"cpu,cpuacct/{group}".rstrip("/")
    return {
        f"{folder}/cpu.cfs_quota_us": f"{quota}\n",
        f"{folder}/cpu.cfs_period_us": "100000\n",
    }


@pytest.mark.parametrize(
    ("groups", "files", "seconds"),
    [
        ("0::/jobs/7\n", {"jobs/7": VERSION_2, "": "throttled_usec 9\n"}, 1.500009),
        ("0::/jobs/7\n", {"jobs/7": "throttled_usec 0\n", "jobs": VERSION_2}, 1.5),  # its quota
        ("0::/jobs/7\n", {"": VERSION_2}, 1.5),  # a container that sees its group as the root
        (HYBRID, {"cpu,cpuacct/jobs/7": VERSION_1, "jobs/8": "usage_usec 7\n"}, 1.5),
        (HYBRID, {"memory/m": VERSION_1}, None),
        ("0::/\n", {}, None),
        (None, {"": VERSION_2}, None),
    ],
)
def test_throttled_seconds_are_read_from_the_control_group(write, groups, files, seconds):
    write(groups, {f"{folder}/cpu.stat".lstrip("/"): content for folder, content in files.items()})
    assert control_group.throttled_seconds() == seconds


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/jobs/7\n", {"jobs/7/cpu.max": "max 100000\n", "jobs/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        (HYBRID, version_1("jobs", 250_000) | version_1("jobs/7", -1), 2.5),
        ("0::/\n", {"cpu.max": "many\n"}, None),
    ],
)
def test_the_smallest_quota_counts(write, groups, files, quota):
    write(groups, files)
    assert control_group.cpu_quota() == quota


@pytest.mark.parametrize(
    ("groups", "files", "limit", "left"),
    [
        (
            "0::/a\n",
            {"memory.max": "9000\n", "memory.current": "8500\n"}
            | {"a/memory.max": "4096\n", "a/memory.current": "4000\n"}
            | {"a/memory.stat": "anon 1000\ninactive_file 3000\n"},
            *(4096, 500),  # the group's files can be dropped, what is above it cannot
        ),
        (
            HYBRID,
            {"memory/m/memory.limit_in_bytes": "2048\n"}
            | {"memory/m/memory.usage_in_bytes": "1024\n"}
            | {"memory/m/memory.stat": "inactive_file 9\ntotal_inactive_file 24\n"},
            *(2048, 1048),
        ),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "7\n"}, None, None),
    ],
)
def test_the_smallest_limit_of_memory_counts_and_the_least_that_is_left(
    write, groups, files, limit, left
):
    write(groups, files)
    assert control_group.memory_limit() == limit
    assert control_group.memory_left() == left


def test_a_run_in_a_group_with_a_quota_takes_as_many_threads(write):
    """The process has all CPUs in its affinity, but no more than half of one."""
    write("0::/\n", {"cpu.max": "50000 100000\n"})
    assert cpu_count() == 1
    assert make_spec().threads == (1,)
    assert len(usable_cpus()) == len(os.sched_getaffinity(0))


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return what writes the process' groups, and files by path, to be read as the kernel's."""
    monkeypatch.setattr(control_group, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(control_group, "OWN_CGROUPS", tmp_path / "own")

    def write(groups, files):
        if groups is not None:
            (tmp_path / "own").write_text(groups)
        for name, content in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    return write
