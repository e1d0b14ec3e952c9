import jax
import numpy as np
import pytest
from flax import nnx
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from layerbench_models import LAYOUTS, build
from layerbench_models.checkpoint.paths import dotted, path_strings


@pytest.mark.parametrize(
    "path",
    [
        ("stack", "layers", 3, "attention", "q"),
        ("stack", "layers", "3", "attention", "q"),
        ("stack", "layers", np.int64(3), "attention", "q"),
        tuple(DictKey(key) for key in ("stack", "layers", 3, "attention", "q")),
        (
            GetAttrKey("stack"),
            GetAttrKey("layers"),
            FlattenedIndexKey(3),
            DictKey("attention"),
            DictKey("q"),
        ),
        ("stack", GetAttrKey("layers"), SequenceKey(3), "attention", DictKey("q")),
        (*map(DictKey, ("stack", "layers", 3, "attention", "q")), GetAttrKey("value")),
    ],
)
def test_a_path_is_the_same_strings_whatever_its_keys_are(path):
    assert path_strings(path) == ("stack", "layers", "3", "attention", "q")
    assert dotted(path) == "stack.layers.3.attention.q"


def test_a_parameter_called_value_keeps_its_name():
    assert path_strings(("head", "value")) == ("head", "value")


@pytest.mark.parametrize("key", [None, True, 1.5, b"q", ("q",)])
def test_a_key_of_an_unknown_kind_is_an_error_and_no_name(key):
    with pytest.raises(TypeError, match="teach path_strings"):
        path_strings(("stack", key))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_paths_of_jax_and_of_flax_are_the_same_strings(layout):
    params = build("qwen3-tiny", layout).abstract_params()
    of_jax = {path_strings(path) for path, _ in jax.tree.leaves_with_path(params)}
    of_flax = {path_strings(path) for path, _ in nnx.to_flat_state(params)}
    assert of_jax == of_flax
    assert all(isinstance(part, str) for path in of_jax for part in path)
