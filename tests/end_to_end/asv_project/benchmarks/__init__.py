import layerbench.asv_types  # noqa: F401 - asv learns the type of our benchmarks
