"""``python -m memlab.testing TESTS``: run the conformance suite and write the record."""

import sys

from memlab.testing import run_suite

if __name__ == "__main__":
    sys.exit(run_suite(sys.argv[1:]))
