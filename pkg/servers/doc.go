// Package servers starts private real servers: a redis-server, a MariaDB (or MySQL), a nats-server, each a child
// process on a free loopback port with its data in a temporary folder.
//
// Every server has Kill (SIGKILL), Stop (SIGTERM), Start (again, same port and data), Pause and Resume (SIGSTOP and
// SIGCONT: alive for the kernel, silent for its clients), and Close, which ends it for good.
//
// Children never outlive this process: CleanUp kills them, and on Linux the kernel kills them when the process dies in
// any other way. A missing server program is an error that says how to install it.
//
// The demo and, through pkg/harness, the tests run on it; nothing in production does. It runs on Linux and macOS.
package servers

// CleanUp kills every child that is left and removes all temporary folders. Call it before the process ends.
func CleanUp() {
	killAllChildren()
	stopLauncher()
	removeRunFolder()
}
