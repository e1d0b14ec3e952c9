"""Targets by name, absent ones too, and the processes that they need."""

import importlib.util
import sys

import pytest

from layerbench.chips import CHIPS
from layerbench.errors import UsageError
from layerbench.targets import parse_target

ABSENT = [f"aot:{name}" for name in CHIPS]
HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None


@pytest.mark.parametrize(("name", "platform"), [("cpu", "cpu"), ("gpu", "cuda"), ("tpu", "tpu")])
def test_a_device_runs_in_a_process_of_its_platform(name, platform):
    target = parse_target(name)
    assert target.chip is None
    assert target.process_environment({})["JAX_PLATFORMS"] == platform
    target.require_compiler()


@pytest.mark.parametrize("name", ABSENT)
def test_an_absent_chip_is_compiled_for_on_the_cpu_and_quietly(name):
    environment = parse_target(name).process_environment(
        {"HOME": "/h", "TF_CPP_MIN_LOG_LEVEL": "0"}
    )
    assert environment["JAX_PLATFORMS"] == "cpu"
    assert environment["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"
    assert (environment["TF_CPP_MIN_LOG_LEVEL"], environment["HOME"]) == ("3", "/h")


@pytest.mark.parametrize("name", ["npu", "aot:", "aot:tpu-v1", "AOT:tpu-v5e"])
def test_an_unknown_target_is_answered_with_those_there_are(name):
    with pytest.raises(UsageError, match=r"choose from .*aot:tpu-v5e"):
        parse_target(name)


def test_an_absent_chip_takes_no_mesh():
    with pytest.raises(UsageError, match="one chip"):
        parse_target("aot:gpu-h200", "tp:2")


@pytest.mark.skipif(HAS_LIBTPU or sys.platform != "linux", reason="the compiler is installed")
def test_a_missing_compiler_is_answered_with_what_to_install():
    with pytest.raises(UsageError, match=r"pip install 'layerbench\[tpu\]'"):
        parse_target("aot:tpu-v5e").require_compiler()


def test_every_chip_has_room_and_a_description_where_its_compiler_needs_one():
    for chip in CHIPS.values():
        assert 0 < chip.on_chip_bytes < chip.memory_bytes
        assert (chip.gpu is not None) == (chip.platform == "gpu")
        assert chip.name.startswith(f"{chip.platform}-")
