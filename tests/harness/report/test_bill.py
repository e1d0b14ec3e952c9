"""One program's bill as a whole text."""

from layerbench import Cell
from layerbench.report.bill import render_bill

MOVER = {"shape": "f32[4,7]", "runs_per_turn": 2}
ANSWER = {
    "cell": Cell("toy", "plain", "generate", 3, 2, 64, new_tokens=8).as_dict(),
    "floor_bytes": 50_000,
    "floor_flops": 1000,
    "has_turns": True,
    "metrics": {
        "hbm_bytes": 100_000.0,
        "hbm_bytes_once": 2000.0,
        "hbm_floor_ratio": 2.0,
        "cache_copy_bytes": 40_000.0,
        "layer_update_bytes": 0.0,
        "launches": 1234.0,
        "loops": 2.0,
        "flops": 1000.0,
    },
    "notes": ["A note."],
    "fingerprint": {
        "flows": [
            {"direction": "read", "role": "kv_cache", "bytes_per_turn": 60_000},
            {"direction": "written", "role": "other", "bytes_per_turn": 40_000},
            {"direction": "read", "role": "weights", "bytes": 2000},
        ],
        "movers": [
            MOVER | {"kind": "copy", "bytes_per_turn": 80_000, "purpose": "copies the KV cache"},
            MOVER | {"kind": "fusion: dot", "bytes_per_turn": 15_000, "loop_depth": 5},
            MOVER | {"kind": "iota", "bytes_per_turn": 5000},
        ],
        "rest": {},
    },
}
EXPECTED = """\
generate of toy, batch 2, seq 64, 8 new tokens, float32, cpu, plain, 3 layers
  hbm_bytes 100 kB per step, floor 50.0 kB, ratio 2.000; 2.00 kB once
  cache_copy_bytes 40.0 kB
  1,234 launches, 2 loops, 1.00 kFLOP (floor 1.00 kFLOP)

 what                        bytes    share
 ──────────────────────────────────────────
 KV cache read             60.0 kB   60.0 %
 everything else written   40.0 kB   40.0 %


   bytes    share   runs   instruction   result     where           purpose
 ──────────────────────────────────────────────────────────────────────────────────────
 80.0 kB   80.0 %      2   copy          f32[4,7]   outside loops   copies the KV cache
 15.0 kB   15.0 %      2   fusion: dot   f32[4,7]   in 5 loops
 5.00 kB    5.0 %          all others

A note.
"""


def test_a_bill_shows_where_each_byte_goes_the_largest_first():
    assert render_bill(ANSWER, top=2) == EXPECTED


def test_a_bill_without_the_bytes_of_a_step_says_so():
    text = render_bill(ANSWER | {"metrics": {"loops": 0.0}, "fingerprint": None}, top=2)
    assert "the bytes of a step are not known" in text
    assert "- launches" in text
