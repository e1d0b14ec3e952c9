"""A slow and obvious forward pass in numpy, float64: one sequence, full attention, no cache.

Written from the models' definition and not from the code under test; it shares only the names of
the parameters.
"""

from __future__ import annotations

import math

import numpy as np
from flax import nnx

from layerbench_models import convert_params


def weights_of(params, layout):
    """The parameters by dotted name, float64, one entry for each layer."""
    flat = nnx.to_flat_state(convert_params(params, layout, "unrolled"))
    return {".".join(map(str, path)): np.asarray(p.get_value(), np.float64) for path, p in flat}


def logits(config, weights, tokens):
    """Scores after each token of one sequence: (T, V)."""
    x = weights["embedding.table"][np.asarray(tokens)]
    for layer in range(config.num_layers):
        prefix = f"stack.layers.{layer}."
        own = {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}
        x = x + _attention(config, own, _norm(x, own["attention_norm.scale"], config.norm_eps))
        h = _norm(x, own["mlp_norm.scale"], config.norm_eps)
        gate = h @ own["mlp.gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ own["mlp.up"])) @ own["mlp.down"]
    x = _norm(x, weights["norm.scale"], config.norm_eps)
    head = weights["embedding.table"].T if config.tied_embeddings else weights["head.kernel"]
    return x @ head


def loss(config, weights, sequences):
    """Mean cross-entropy of every token that has one before it."""
    losses = []
    for tokens in sequences:
        if len(tokens) > 1:
            scores = logits(config, weights, tokens)
            for place in range(len(tokens) - 1):
                row = scores[place]
                peak = row.max()
                losses.append(peak + math.log(np.exp(row - peak).sum()) - row[tokens[place + 1]])
    return float(np.mean(losses))


def _attention(config, own, x):
    context = np.zeros((len(x), config.num_heads, config.head_dim))
    group = config.num_heads // config.num_kv_heads
    for head in range(config.num_heads):
        q = x @ own["attention.q"][:, head]
        k = x @ own["attention.k"][:, head // group]
        v = x @ own["attention.v"][:, head // group]
        if config.qk_norm:
            q = _norm(q, own["attention.q_norm.scale"], config.norm_eps)
            k = _norm(k, own["attention.k_norm.scale"], config.norm_eps)
        q, k = _rotate(config, q), _rotate(config, k)
        for place in range(len(x)):
            scores = k[: place + 1] @ q[place] / math.sqrt(config.head_dim)
            weights = np.exp(scores - scores.max())
            context[place, head] = weights / weights.sum() @ v[: place + 1]
    return np.einsum("tnh,nhd->td", context, own["attention.o"])


def _rotate(config, x):
    half = config.head_dim // 2
    out = np.empty_like(x)
    for place in range(len(x)):
        for pair in range(half):
            angle = place * frequency(config, pair)
            first, second = x[place, pair], x[place, pair + half]
            out[place, pair] = first * math.cos(angle) - second * math.sin(angle)
            out[place, pair + half] = second * math.cos(angle) + first * math.sin(angle)
    return out


def frequency(config, pair):
    """Radians per place of one rotated pair."""
    plain = config.rope_theta ** (-2 * pair / config.head_dim)
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    wavelength = 2 * math.pi / plain
    if wavelength < scaling.original_context / scaling.high_freq_factor:
        return plain
    if wavelength > scaling.original_context / scaling.low_freq_factor:
        return plain / scaling.factor
    smooth = (scaling.original_context / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return (1 - smooth) * plain / scaling.factor + smooth * plain


def _norm(x, scale, eps):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * scale
