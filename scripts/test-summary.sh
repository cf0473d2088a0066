#!/bin/sh
# Prints the closing line of a test run, "N passed, N failed". Subtests count, and so do packages that
# failed without a test (a build error, goroutines left behind).
# Usage: called by gotestsum (--post-run-command), which hands over the counts in the environment.
# Changes nothing.
passed="$(grep '"Action":"pass"' "$GOTESTSUM_JSONFILE" | grep -c '"Test":')"
echo "$passed passed, $TESTS_FAILED failed"
