"""What a layout may choose from, one enum for each question."""

from __future__ import annotations

from enum import StrEnum


class Parameters(StrEnum):
    """How the layers' parameters are stored."""

    LIST = "list"
    """One array for each layer."""
    STACKED = "stacked"
    """One array with a leading axis L."""
    STACKED_ON_1 = "stacked-on-1"
    """One array whose axis 1 is L, as `param_scan_axis=1` makes it elsewhere."""
    ENDS_APART = "ends-apart"
    """The first and the last layer have arrays of their own, those between are stacked."""

    @property
    def layer_axis(self) -> int | None:
        """The axis of each parameter that counts all layers, or None where there is none."""
        return {Parameters.STACKED: 0, Parameters.STACKED_ON_1: 1}.get(self)


class Creation(StrEnum):
    """How the layers' parameters are created; all give the same numbers for one key."""

    LOOP = "loop"
    """A Python loop over the layers, which stay apart (or are stacked between the ends)."""
    LOOP_STACKED = "loop-stacked"
    """A Python loop, then one stack of each parameter: all layers are there twice for a moment."""
    PREALLOCATED = "preallocated"
    """Empty stacks into which one layer after the other is written, donated: one alive at a time."""
    VMAP = "vmap"
    """`nnx.vmap` over the layers' keys, the new axis named in the partition metadata."""
    VMAP_UNNAMED = "vmap-unnamed"
    """The same without a name for the axis: the recorded mesh axes are off by one."""
    SCAN_KEYS = "scan-keys"
    """`lax.scan` over the layers' keys: the program does not grow with the layers."""
    JIT_SHARDED = "jit-sharded"
    """`jit` of the vmapped creation with the parameters' shardings as `out_shardings`."""


class Forward(StrEnum):
    """How the layers are run in a phase."""

    LOOP = "loop"
    """A Python loop: every layer is in the program."""
    INNER_JIT = "inner-jit"
    """A Python loop that calls one jitted layer: traced once, called once for each layer."""
    SCAN = "scan"
    """`lax.scan` over the stacked parameters."""
    SCAN_CLOSURE = "scan-closure"
    """`lax.scan` over the layers' numbers, the parameters taken by index from the closure."""
    FORI = "fori"
    """`lax.fori_loop`, the parameters taken by index."""
    NNX_SCAN = "nnx-scan"
    """`nnx.scan` over a module of stacked layers."""
    NESTED_SCAN = "nested-scan"
    """A scan over blocks of layers and in it one over the layers of a block."""
    HYBRID = "hybrid"
    """The first and the last layer by themselves, a scan over those between."""
    PIPELINE = "pipeline"
    """All layers at once, vmapped, on different micro-batches in a shifting buffer."""

    @property
    def is_compiled_loop(self) -> bool:
        """Whether layers run in a loop of the compiled program, one after the other."""
        return self not in {Forward.LOOP, Forward.INNER_JIT, Forward.PIPELINE}

    @property
    def is_scan(self) -> bool:
        """Whether it is built on scans, which can be unrolled."""
        return self.is_compiled_loop and self is not Forward.FORI


class CacheForm(StrEnum):
    """How the KV cache is stored and how it travels past the layers."""

    LIST = "list"
    """One array for each layer, the token written in place."""
    XS_YS = "xs-ys"
    """One array, each layer's slice going in and the changed slice coming out into a new array."""
    CARRY_LAYER = "carry-layer"
    """One array in the carry, each layer taken out, changed and written back whole."""
    CARRY_TOKEN = "carry-token"  # noqa: S105 - a token of text, no secret
    """One array in the carry, one token written for each layer, before the layer is read."""
    READ_THEN_WRITE = "read-then-write"
    """The same with the write after the read; the current token is attended to apart."""
    DEFERRED_WRITE = "deferred-write"
    """One array that the loop only reads; all layers' tokens are written once, behind the loop."""
    STAGES = "stages"
    """One array, each stage of the pipeline reading and writing its own layer."""

    @property
    def is_stacked(self) -> bool:
        """Whether all layers share one array."""
        return self is not CacheForm.LIST

    @property
    def joins_token(self) -> bool:
        """Whether a decode step reads the cache before the current token is in it."""
        return self in {CacheForm.READ_THEN_WRITE, CacheForm.DEFERRED_WRITE}


class DecodeWeights(StrEnum):
    """Which form of the parameters a decode step runs on."""

    AS_STORED = "as-stored"
    UNSTACKED_ONCE = "unstacked-once"
    """A list, made from the stacked parameters once, outside the loop over tokens."""


class Remat(StrEnum):
    """What the backward pass computes again instead of storing it."""

    NONE = "none"
    FULL = "full"
    """All, from a layer's input."""
    DOTS = "dots"
    """All but the results of contractions, which are stored."""
    NAMED = "named"
    """All but what carries a name: the outputs of attention and feed-forward network."""
    NESTED = "nested"
    """All, twice over: blocks from their input, and in each block the layers from theirs."""


class RematScope(StrEnum):
    """What is computed again as one piece."""

    LAYER = "layer"
    """Each layer by itself."""
    MODEL = "model"
    """The whole stack of layers."""
