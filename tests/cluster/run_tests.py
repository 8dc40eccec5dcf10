"""Runs the tests of this directory and closes with `N passed, N failed, N skipped`."""

import pathlib
import sys
import unittest


def closing_line(result: unittest.TestResult) -> str:
    """Counts each test once: skipped and failed tests have not passed."""
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    passed = max(result.testsRun - failed - skipped, 0)
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def run(tests: unittest.TestSuite) -> unittest.TestResult:
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    for test, reason in result.skipped:
        print(f"SKIPPED: {test.id()}: {reason}", file=sys.stderr)
    print(closing_line(result), file=sys.stderr)
    return result


if __name__ == "__main__":
    discovered = unittest.defaultTestLoader.discover(str(pathlib.Path(__file__).resolve().parent))
    sys.exit(not run(discovered).wasSuccessful())
