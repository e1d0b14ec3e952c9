"""Lets asv's environment import what the tests' environment has, so that nothing is downloaded."""

import pathlib
import sys
import sysconfig

pathlib.Path(sysconfig.get_path("purelib"), "lent.pth").write_text(sys.argv[1] + "\n")
