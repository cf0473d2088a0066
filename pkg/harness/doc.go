// Package harness gives tests private real servers and the means to break them.
//
// A test asks for a server and gets one of its own: a child process on a free loopback port, with its
// data in a temporary folder, stopped and removed when the test ends.
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
//	func TestGrantSurvivesPowerLoss(t *testing.T) {
//		nats := harness.NATS(t)
//		...
//		nats.Kill()  // SIGKILL: what was not on disk is gone
//		nats.Start() // same port, same data
//		...
//	}
//
// Every server has Kill (SIGKILL), Stop (SIGTERM), Start (again, same port and data), Pause and Resume
// (SIGSTOP and SIGCONT: alive for the kernel, silent for its clients).
//
// Children never outlive the test binary: Main kills them at the end, and on Linux the kernel kills them
// when the test binary dies in any other way. A missing server program fails the test with the command
// that installs it; nothing is ever skipped.
//
// The servers themselves are pkg/servers'; here a failure fails the test. The package runs on Linux and macOS.
// Only tests import it.
package harness
