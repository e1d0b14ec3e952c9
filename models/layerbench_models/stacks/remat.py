"""What a backward pass computes again: functions wrapped as a layout says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from layerbench_models.layers.decoder_layer import SAVED_NAMES
from layerbench_models.stacks.choices import Remat

_POLICIES: dict[Remat, Callable[..., Any] | None] = {
    Remat.FULL: None,  # nothing is stored
    Remat.DOTS: jax.checkpoint_policies.dots_saveable,
    Remat.NAMED: jax.checkpoint_policies.save_only_these_names(*SAVED_NAMES),
    Remat.NESTED: None,  # what is special is that blocks are wrapped too
}


def checkpointed(
    function: Callable[..., Any], remat: Remat, *, in_loop: bool
) -> Callable[..., Any]:
    """Returns the function, whose backward pass computes again what `remat` says.

    Args:
        function: A function of arrays; it may close over others.
        remat: What is computed again.
        in_loop: Whether it is the body of a compiled loop. There nothing can be merged with the
            forward pass, and the barriers that prevent it would only cost.
    """
    if remat is Remat.NONE:
        return function
    return jax.checkpoint(function, prevent_cse=not in_loop, policy=_POLICIES[remat])
