"""Define the machine of a run, and what frameworks reach on it without a model."""

from __future__ import annotations

from dataclasses import dataclass, field

from .number_types import Over0, Positive

CHOOSE_INSTRUCTIONS = (
    *("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_CBWR"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "BLIS_ARCH_TYPE"),
)
"""Environment variables by which a library takes other instructions than the best ones of the
processor."""


@dataclass(frozen=True)
class Machine:
    """Describe the machine of a run."""

    cpu: str
    """Name of the processor; x86's with family and model, since a hypervisor may shorten it."""
    cpus: Positive
    """CPUs that this process may use, by its affinity and its control group's quota, rounded up."""
    memory_bytes: Positive
    """Size of the memory, or the control group's limit."""
    gpus: list[str]
    """Names of the GPUs that CUDA_VISIBLE_DEVICES shows, in its order."""
    gpu_problem: str | None
    """Why gpus is empty or NVML's figures are missing, in a line; None where there is no driver."""
    system: str
    """Operating system and its release."""
    python: str
    """Version of Python."""
    libraries: dict[str, str]
    """Versions of NumPy and psutil."""
    label: str | None = None
    """Name that the user gave it: the tables show it in place of the processor's."""
    page_bytes: Positive = 4096
    """Bytes of a page of memory."""
    environment: dict[str, str] = field(default_factory=dict)
    """The user's environment variables that change the speed, such as XLA_FLAGS or
    MALLOC_MMAP_MAX_, but for those that the run sets itself."""
    bfloat16_instructions: list[str] | None = None
    """The processor's instructions that multiply in bfloat16, such as avx512_bf16; None where the
    system does not list them."""
    available_bytes: Positive | None = field(default=None, compare=False)
    """Memory that was free, or could be freed, when the run began; None in older files."""
    huge_pages: str | None = None
    """When Linux gives huge pages: always, madvise or never; None elsewhere."""

    @property
    def name(self) -> str:
        """Return the label, or the processor's name."""
        return self.label or self.cpu

    @property
    def chosen_instructions(self) -> list[str]:
        """Return the variables of the environment that choose the processor's instructions."""
        return [name for name in CHOOSE_INSTRUCTIONS if name in self.environment]


@dataclass(frozen=True)
class Peak:
    """Hold what a framework reaches on a device without a model: the two limits of the roofline."""

    gflops: Over0
    """10^9 FLOPs per second of a large matrix multiplication, in the cell's precision."""
    copy_gigabytes: Over0
    """10^9 bytes per second of a large copy, reads and writes both counted."""
    memory_gigabytes: Over0 | None = None
    """What the memory itself reaches: NumPy's copy on as many threads, or the bandwidth of the
    GPU's memory by its clock and bus; None where NVML does not tell."""

    def highest(self, other: Peak) -> Peak:
        """Return the higher value of each of the two."""
        memory = [p.memory_gigabytes for p in (self, other) if p.memory_gigabytes is not None]
        return Peak(
            max(self.gflops, other.gflops),
            max(self.copy_gigabytes, other.copy_gigabytes),
            max(memory, default=None),
        )
