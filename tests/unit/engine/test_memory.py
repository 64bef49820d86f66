"""How many blocks fit."""

import subprocess
import sys
from pathlib import Path

from engine.memory import available_bytes, fitting_blocks
from engine.model_config import ModelConfig

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\nHugePages_Total:  0\n"


def test_the_tighter_of_machine_and_container_counts(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert available_bytes(tmp_path / "meminfo", tmp_path) == 400 * 1024
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path / "meminfo", tmp_path) == 400 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert available_bytes(tmp_path / "meminfo", tmp_path) == 4000


def test_there_is_one_block_at_least_and_no_more_than_can_be_used() -> None:
    assert fitting_blocks(1 << 50, 0.5, 100) == 1
    assert fitting_blocks(1, 0.5, 100) == 100


def test_a_block_of_smollm2_takes_720_kib() -> None:
    config = ModelConfig(49152, 576, 1536, 30, 9, 3, 64, 1e5, 1e-5, 8192, True)
    assert config.kv_bytes(16, 4) == 720 * 1024


FAULTS = """
import resource
from engine.memory import keep_freed_memory
keep_freed_memory()
bytearray(64 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(64 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_what_a_step_has_freed_is_not_given_back_to_the_system() -> None:
    """64 MiB are 16,384 pages, each of which would be a fault."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000
