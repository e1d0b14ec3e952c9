"""What is measured: anyone's jitted function, with all that a fair measurement of it needs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from layerbench.floor import Floor

Arguments = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Turns:
    """How one compiled loop is run for more or fewer turns, so that a turn's cost can be told.

    A step of a loop is its marginal turn, (time of `long` - time of `short`) / (`long` - `short`):
    what the program does once, before and after its loop, cancels.

    Attributes:
        short: Turns of the short run, at least 1.
        long: Turns of the long run, more than `short`.
        with_turns: Gives the arguments that make the program run so many turns.
    """

    short: int
    long: int
    with_turns: Callable[[Arguments, int], Arguments]

    def __post_init__(self) -> None:
        if not 1 <= self.short < self.long:
            raise ValueError(
                f"a loop needs 1 <= short < long turns, not {self.short} and {self.long}"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """A pure function of arrays and everything needed to compile, run, check and judge it.

    Attributes:
        function: The function, not yet jitted; it must not change anything but its result.
        make_arguments: Allocates fresh arguments on the device. Called once for each measurement.
        abstract_arguments: The same arguments as trees of `jax.ShapeDtypeStruct`, with shardings
            where there is a mesh. The program is compiled from these; nothing is allocated.
        donated: Positions of the arguments whose buffers the function may reuse.
        thread: Gives the arguments of the next call from the outputs and arguments of the last, so
            that donated state is handed on.
        check: Raises `WrongAnswerError` if the outputs are wrong; its second argument is the number
            of calls made before with the threaded state.
        tokens_per_step: Tokens that one step takes in (prefill, training) or gives out (decode).
        floor: Bytes and operations that no implementation can do without.
        watched: Buffers whose traffic is followed in the compiled program, by role (`kv_cache`,
            `weights`): trees of `jax.ShapeDtypeStruct`.
        turns: For a function that is a loop; a step is then its marginal turn.
        note: What a table has to say of this workload, such as that it is a pipeline.
        contender: Whether it may be called the best of its group.
    """

    function: Callable[..., Any]
    make_arguments: Callable[[], Arguments]
    abstract_arguments: Arguments
    thread: Callable[[Any, Arguments], Arguments]
    check: Callable[[Any, int], None]
    tokens_per_step: int
    floor: Floor
    donated: tuple[int, ...] = ()
    watched: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    turns: Turns | None = None
    note: str = ""
    contender: bool = True
