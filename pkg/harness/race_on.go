//go:build race

package harness

// raceEnabled tells that this test binary has the race detector.
const raceEnabled = true
