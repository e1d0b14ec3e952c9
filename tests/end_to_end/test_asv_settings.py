"""This repository's asv settings, without running asv."""

import re
from pathlib import Path

import pytest

pytest.importorskip("asv", reason="asv is an extra of the harness")

from asv.config import Config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def settings():
    return Config.load(str(ROOT / "asv.conf.json"))


def test_asvs_environments_have_the_versions_of_the_lane(settings):
    lane = dict(
        line.split("==")
        for line in (ROOT / "constraints" / "py311-jax0.10.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    wanted = {
        name.removeprefix("pip+"): versions for name, versions in settings.matrix["req"].items()
    }
    assert {"jax", "jaxlib", "flax", "numpy", "hatchling", "asv_runner"} <= set(wanted)
    assert wanted == {name: [lane[name]] for name in wanted}


def test_the_models_are_measured_with_the_checkouts_harness(settings):
    assert settings.repo_subdir == "models"
    wheel, harness = settings.install_command
    assert "{wheel_file}" in wheel
    assert re.search(r"-e \{conf_dir\}/harness$", harness)


def test_no_branch_has_to_exist_and_no_process_is_forked(settings):
    assert settings.branches == ["HEAD"]
    assert settings.launch_method == "spawn"
