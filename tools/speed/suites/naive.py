"""A suite as people write it: compile in `setup`, one method for each metric."""

from .program import PARAM_NAMES, PARAMS, Program


class Cells:
    params = PARAMS
    param_names = PARAM_NAMES
    timeout = 600

    def setup(self, phase, layout, layers):
        self.program = Program(phase, layout, layers)

    def time_step(self, *_):
        self.program.step()

    def track_compile_ms(self, *_):
        return self.program.compile_ms

    def track_trace_ms(self, *_):
        return self.program.trace_ms

    def track_lower_ms(self, *_):
        return self.program.lower_ms

    def track_first_call_ms(self, *_):
        return self.program.first_call_ms

    def track_temp_bytes(self, *_):
        return self.program.temp_bytes

    def track_output_bytes(self, *_):
        return self.program.output_bytes

    def track_undonated_bytes(self, *_):
        return self.program.undonated_bytes

    def track_stablehlo_lines(self, *_):
        return self.program.stablehlo_lines
