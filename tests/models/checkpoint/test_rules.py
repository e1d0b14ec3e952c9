import jax
import numpy as np
import pytest
from flax import nnx
from jax.tree_util import DictKey, GetAttrKey, SequenceKey

from layerbench_models import PRESETS, build
from layerbench_models.checkpoint.rules import (
    LAYER,
    RULES,
    axis_sizes,
    is_stacked_name,
    rule_of,
    rule_of_tensor,
)

SIZES = {"v": 37, "d": 19, "f": 29, "n": 10, "k": 2, "h": 14}

# name: shape in the checkpoint, shape in the model, and how one element finds its place.
FACTS = {
    "model.embed_tokens.weight": ((37, 19), (37, 19), lambda w, v, d: w[v, d]),
    "model.norm.weight": ((19,), (19,), lambda w, d: w[d]),
    "lm_head.weight": ((37, 19), (19, 37), lambda w, d, v: w[v, d]),
    "model.layers.*.input_layernorm.weight": ((19,), (19,), lambda w, d: w[d]),
    "model.layers.*.post_attention_layernorm.weight": ((19,), (19,), lambda w, d: w[d]),
    "model.layers.*.self_attn.q_proj.weight": (
        (140, 19),
        (19, 10, 14),
        lambda w, d, n, h: w[14 * n + h, d],
    ),
    "model.layers.*.self_attn.k_proj.weight": (
        (28, 19),
        (19, 2, 14),
        lambda w, d, k, h: w[14 * k + h, d],
    ),
    "model.layers.*.self_attn.v_proj.weight": (
        (28, 19),
        (19, 2, 14),
        lambda w, d, k, h: w[14 * k + h, d],
    ),
    "model.layers.*.self_attn.o_proj.weight": (
        (19, 140),
        (10, 14, 19),
        lambda w, n, h, d: w[d, 14 * n + h],
    ),
    "model.layers.*.self_attn.q_norm.weight": ((14,), (14,), lambda w, h: w[h]),
    "model.layers.*.self_attn.k_norm.weight": ((14,), (14,), lambda w, h: w[h]),
    "model.layers.*.mlp.gate_proj.weight": ((29, 19), (19, 29), lambda w, d, f: w[f, d]),
    "model.layers.*.mlp.up_proj.weight": ((29, 19), (19, 29), lambda w, d, f: w[f, d]),
    "model.layers.*.mlp.down_proj.weight": ((19, 29), (29, 19), lambda w, f, d: w[d, f]),
}


def test_every_rule_has_its_fact():
    assert [rule.tensor for rule in RULES] == list(FACTS) or {r.tensor for r in RULES} == set(FACTS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.tensor)
def test_a_rule_gives_shapes_and_the_place_of_each_element(rule):
    stored, held, element = FACTS[rule.tensor]
    assert rule.stored_shape(SIZES) == stored
    assert rule.held_shape(SIZES) == held
    weights = np.arange(np.prod(stored)).reshape(stored)
    turned = weights.reshape(rule.split_shape(SIZES)).transpose(rule.permutation)
    expected = np.fromfunction(np.vectorize(lambda *at: element(weights, *at)), held, dtype=int)
    np.testing.assert_array_equal(turned, expected)


def test_names_of_rules_are_unique():
    assert len({rule.tensor for rule in RULES}) == len(RULES)
    assert len({rule.parameter for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("name", PRESETS)
def test_every_parameter_of_every_preset_has_a_rule_of_its_shape(name):
    model = build(PRESETS[name].with_layers(2), "unrolled")
    found = set()
    for path, leaf in jax.tree.leaves_with_path(model.abstract_params()):
        rule, layer = rule_of(path)
        assert rule.held_shape(axis_sizes(model.config)) == leaf.shape
        assert (layer is None) == (LAYER not in rule.tensor)
        found.add(rule.tensor_name(layer))
    assert len(found) == len(jax.tree.leaves(model.abstract_params()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.parameter)
def test_a_rule_is_met_by_plain_strings_and_by_key_objects(rule):
    plain = rule.parameter.replace(LAYER, "7").split(".")
    numbered = [int(part) if part.isdigit() else part for part in plain]
    keys = [SequenceKey(part) if isinstance(part, int) else GetAttrKey(part) for part in numbered]
    expected = (rule, 7 if LAYER in rule.parameter else None)
    assert rule_of(plain) == expected
    assert rule_of(numbered) == expected
    assert rule_of(keys) == expected
    assert rule_of([*map(DictKey, numbered), GetAttrKey("value")]) == expected
    assert rule_of_tensor(rule.tensor_name(7)) == expected


@pytest.mark.parametrize(
    "path",
    [
        ("stack", "layers", 0, "attention", "lora_a"),
        (DictKey("stack"), DictKey("layers"), DictKey(0), DictKey("mlp"), DictKey("experts")),
        ("stack", "layers", "attention", "q"),
        ("embedding", "table", "0"),
    ],
)
def test_a_parameter_without_a_rule_is_known_to_have_none(path):
    assert rule_of(path) is None


def test_names_with_the_layer_left_out_are_told_apart():
    assert is_stacked_name("model.layers.self_attn.q_proj.weight")
    assert is_stacked_name("stack.layers.attention.q")
    assert not is_stacked_name("model.layers.0.self_attn.q_proj.weight")
    assert not is_stacked_name("model.norm.weight")


def test_a_parameter_that_no_rule_knows_is_an_error_and_not_left_out(qwen, monkeypatch, tmp_path):
    from layerbench_models import ParameterError, save_safetensors
    from layerbench_models.layers import GatedMLP

    create = GatedMLP.__init__

    def with_adapter(self, config, **options):
        create(self, config, **options)
        self.lora_a = nnx.Param(np.zeros((2, 3), np.float32))

    monkeypatch.setattr(GatedMLP, "__init__", with_adapter)
    model = build(qwen, "unrolled")
    with pytest.raises(ParameterError, match=r"no rule.*stack\.layers\.0\.mlp\.lora_a"):
        save_safetensors(model.abstract_params(), model, tmp_path / "out")
