"""The compiled program as a measurement: HLO text, loops, bytes moved, and what they cost.

Data flows one way: text -> `parser` -> `hlo.Module` -> `weights` (how often each instruction runs)
-> `traffic` (what each moves), `buffers` (whose bytes these are) -> `figures` and `fingerprint`.
Only `executable` and `operations` know jax.
"""
