"""Where a layout keeps each tensor of a checkpoint: in which array, at which index.

A layout decides that in `convert_params` and nowhere else, so it is asked rather than known here: a
tiny model in which every parameter is one number, its identity, is converted, and where the numbers
come out is where the tensors belong. A new layout needs no change here.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import nnx

from layerbench_models.checkpoint.paths import dotted
from layerbench_models.checkpoint.rules import LAYER, Rule, axis_sizes, rule_of
from layerbench_models.errors import ParameterError
from layerbench_models.stacks.convert import convert_params
from layerbench_models.stacks.layout import LAYOUTS

if TYPE_CHECKING:
    from layerbench_models.model import Model

_LIST_LAYOUT = "unrolled"
_LAYERS = ("stack", "layers")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A part of an array that one tensor of a checkpoint fills.

    Attributes:
        rule: Which kind of tensor it is.
        layer: The number of its layer, or None outside the layers.
        index: Where in the array it lies: whole axes, and a number at each layer axis.
    """

    rule: Rule
    layer: int | None
    index: tuple[slice | int, ...]

    @property
    def tensor(self) -> str:
        """The tensor's name in a checkpoint."""
        return self.rule.tensor_name(self.layer)


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """An array of a model's parameters.

    Attributes:
        name: The parameter's dotted path in this layout.
        abstract: Its shape and type, and its sharding if the model has a mesh.
        places: The tensors that fill it.
    """

    name: str
    abstract: jax.ShapeDtypeStruct
    places: tuple[Place, ...]


def holders(model: Model) -> list[Holder]:
    """Returns the arrays of a model's parameters, in the order of their tree.

    Raises:
        ParameterError: If a parameter has no rule, or a layout keeps it in an unknown way. Nothing
            is left out in silence.
    """
    kinds = _kinds(model)
    converted = convert_params(_marked(model, kinds), _LIST_LAYOUT, model.layout)
    marks = {dotted(path): np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(converted)}
    sizes = axis_sizes(model.config)
    found = []
    for path, abstract in jax.tree.leaves_with_path(model.abstract_params()):
        name = dotted(path)
        if name not in marks:
            raise ParameterError(f"layout {model.layout.name!r} does not say what {name} holds")
        found.append(_holder(name, abstract, marks.pop(name), kinds, sizes))
    placed = [place.tensor for holder in found for place in holder.places]
    layers = model.config.num_layers
    expected = sum(layers if LAYER in rule.tensor else 1 for rule in kinds)
    if marks or len(placed) != expected or len(set(placed)) != expected:
        raise ParameterError(
            f"layout {model.layout.name!r} does not hold every parameter once: its conversion from "
            f"{_LIST_LAYOUT!r} is wrong"
        )
    return found


def _one_layer(model: Model) -> dict[tuple[Any, ...], nnx.Variable[Any]]:
    """Returns the parameters of the model with one layer, in a list, by their paths."""
    config = model.config.with_layers(1)
    short = dataclasses.replace(model, config=config, layout=LAYOUTS[_LIST_LAYOUT], mesh=None)
    return dict(nnx.to_flat_state(short.abstract_params()))


def _kinds(model: Model) -> list[Rule]:
    kinds = []
    for path in _one_layer(model):
        match = rule_of(path)
        if match is None:
            raise ParameterError(
                f"no rule says which tensor of a checkpoint {dotted(path)} is: add it to RULES"
            )
        kinds.append(match[0])
    return kinds


def _marked(model: Model, kinds: list[Rule]) -> nnx.State:
    """Returns a model in a list whose parameters are one number each.

    The number is the layer's times the number of kinds, plus the kind's place in their list.
    """
    flat = {}
    for kind, (path, parameter) in enumerate(_one_layer(model).items()):
        rank = len(kinds[kind].held.split())

        def marked(
            layer: int, parameter: Any = parameter, rank: int = rank, kind: int = kind
        ) -> Any:
            return parameter.replace(np.full((1,) * rank, layer * len(kinds) + kind, np.int32))

        if path[:2] != _LAYERS:
            flat[path] = marked(0)
            continue
        for layer in range(model.config.num_layers):
            flat[(*_LAYERS, layer, *path[3:])] = marked(layer)
    return nnx.from_flat_state(flat)


def _holder(
    name: str,
    abstract: jax.ShapeDtypeStruct,
    marks: np.ndarray,
    kinds: list[Rule],
    sizes: dict[str, int],
) -> Holder:
    kind = set((marks % len(kinds)).ravel().tolist())
    rule = kinds[kind.pop()] if len(kind) == 1 else None
    if rule is None:
        raise ParameterError(f"{name} mixes several kinds of parameters: there is no rule for that")
    axes = _layer_axes(abstract.shape, marks.shape, rule.held_shape(sizes))
    if axes is None:
        raise ParameterError(
            f"{name} has shape {abstract.shape}, which is no stack of {rule.held_shape(sizes)}"
        )
    places = []
    for position, mark in np.ndenumerate(marks):
        index: list[slice | int] = [slice(None)] * marks.ndim
        for axis in axes:
            index[axis] = position[axis]
        layer = int(mark) // len(kinds) if LAYER in rule.tensor else None
        places.append(Place(rule, layer, tuple(index)))
    return Holder(name, abstract, tuple(places))


def _layer_axes(
    shape: tuple[int, ...], marks: tuple[int, ...], held: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Returns which axes of an array count layers: all that are not one layer's own."""
    if len(shape) != len(marks):
        return None
    for axes in itertools.combinations(range(len(shape)), len(shape) - len(held)):
        own = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        counted = all(
            marks[axis] == (shape[axis] if axis in axes else 1) for axis in range(len(shape))
        )
        if own == held and counted:
            return axes
    return None
