"""So that `python -m layerbench` works as `layerbench` does."""

import sys

from layerbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
