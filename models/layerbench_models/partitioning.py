"""Which mesh axis splits which axis of parameters and caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from layerbench_models.cache import CacheOrder
from layerbench_models.errors import LayoutError
from layerbench_models.layers.parameter import FSDP, TP


def param_specs(params: nnx.State) -> nnx.State:
    """Returns the parameters' tree with a PartitionSpec in the place of each array."""
    return nnx.get_partition_spec(params)


def cache_spec(order: CacheOrder, *, stacked: bool) -> PartitionSpec:
    """Returns the spec of a cache's arrays: the batch on fsdp, key/value heads on tp."""
    by_letter = {"b": FSDP, "k": TP}
    axes = [by_letter.get(letter) for letter in order.axes]
    return PartitionSpec(*([None] if stacked else []), *axes)


def automatic(mesh: Mesh) -> Mesh:
    """Returns the mesh with automatic axes, so that the compiler places the intermediates."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def named_sharding(mesh: Mesh, spec: PartitionSpec, shape: Sequence[int]) -> NamedSharding:
    """Returns how the mesh splits an array; axes that the mesh does not have split nothing.

    Raises:
        LayoutError: If an axis does not split evenly.
    """
    axes = [axis if axis in mesh.axis_names else None for axis in spec]
    for size, axis in zip(shape, axes, strict=False):
        if axis is not None and size % mesh.shape[axis]:
            raise LayoutError(
                f"an axis of size {size} does not split over {mesh.shape[axis]} devices of mesh "
                f"axis {axis!r}: choose a mesh whose {axis} divides it"
            )
    return NamedSharding(mesh, PartitionSpec(*axes))


def tree_shardings(mesh: Mesh, specs: Any, arrays: Any) -> Any:
    """Returns the shardings of a tree of arrays, given the equal tree of their specs."""
    return jax.tree.map(
        lambda spec, array: named_sharding(mesh, spec, array.shape),
        specs,
        arrays,
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )
