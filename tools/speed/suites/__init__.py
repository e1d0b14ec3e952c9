"""The suites that `layerbench compare` is held against; asv's own types and nothing of ours."""
