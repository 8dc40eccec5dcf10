"""The closing line of the cluster's tests."""

import contextlib
import io
import unittest

import run_tests


class Outcomes(unittest.TestCase):
    def passes(self):
        pass

    def fails(self):
        self.fail("on purpose")

    @unittest.skip("Ray is not installed")
    def is_skipped(self):
        self.fail("a skipped test runs")


class ClosingLineTests(unittest.TestCase):
    def test_skipped_test_does_not_count_as_passed(self):
        tests = unittest.TestSuite(Outcomes(name) for name in ["passes", "fails", "is_skipped"])
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            run_tests.run(tests)
        lines = printed.getvalue().splitlines()
        self.assertEqual(lines[-1], "1 passed, 1 failed, 1 skipped")
        self.assertTrue(lines[-2].startswith("SKIPPED: ") and lines[-2].endswith(": Ray is not installed"), lines[-2])
