"""Cells of targets that are not there: bytes in the place of times, as a whole text."""

from layerbench import Cell, Floor
from layerbench.record import Measured, Record, Status
from layerbench.report.comparison import compare_records
from layerbench.report.table import render_table

EXPECTED = """\
decode_step of toy, batch 3, seq 5, bfloat16, aot:tpu-v5e

 layers   layout         hbm bytes   over floor   once   floor bytes   cache copies   weights cut   temp memory   beyond memory
 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      2   unrolled         2.20 MB        1.10x      -       2.00 MB            0 B             -       1.00 kB             0 B
          stacked-scan     8.00 MB            -      -                      4.00 MB             -       1.00 kB             0 B
          stacked [1]            -            -      -                            -             -             -         3.00 GB
          vmap [2]          failed


[1] Does not fit.
[2] no such layer

decode_step of toy on aot:tpu-v5e, 2 layers: fewest bytes a step: unrolled 2.20 MB, then stacked-scan 8.00 MB.
"""


def compiled(layout, notes=(), **figures):
    return Record(
        cell=Cell("toy", layout, "decode_step", 2, 3, 5, "bfloat16", "aot:tpu-v5e"),
        status=Status.OK,
        metrics={name: Measured(value) for name, value in figures.items()},
        floor=Floor(hbm_bytes=2_000_000, flops=1),
        notes=notes,
    )


def test_layouts_that_were_compiled_and_not_run_are_compared_by_their_bytes():
    common = {"temp_bytes": 1000, "over_capacity_bytes": 0}
    records = [
        compiled("unrolled", hbm_bytes=2.2e6, hbm_floor_ratio=1.1, cache_copy_bytes=0, **common),
        compiled("stacked-scan", hbm_bytes=8e6, cache_copy_bytes=4e6, **common),
        compiled("stacked", notes=("Does not fit.",), over_capacity_bytes=3e9),
    ]
    failed = Record.failure(
        Cell("toy", "vmap", "decode_step", 2, 3, 5, "bfloat16", "aot:tpu-v5e"), "no such layer"
    )
    assert all(record.is_compiled_only for record in records)
    assert not failed.is_compiled_only
    assert render_table(compare_records([*records, failed])) == EXPECTED


def test_a_timed_record_is_not_compiled_only(make_record):
    assert not make_record().is_compiled_only
