package servers

import (
	"runtime"
	"sync"
)

// Linux ties "kill me when my parent dies" to the parent's thread, not to its process, and Go retires
// threads as it likes. So all children are started by one goroutine that keeps its thread until the end.
var launcher struct {
	mu       sync.Mutex
	requests chan func()
	finished chan struct{}
}

// StartLauncher starts the goroutine that starts the children, which the first child would do otherwise: a
// test for leaked goroutines counts it among those that were there before.
func StartLauncher() {
	launcher.mu.Lock()
	defer launcher.mu.Unlock()
	startLauncherLocked()
}

func startLauncherLocked() {
	if launcher.requests != nil {
		return
	}
	requests, finished := make(chan func()), make(chan struct{})
	launcher.requests, launcher.finished = requests, finished
	go func() {
		defer close(finished)
		runtime.LockOSThread() // Never unlocked: the thread ends with this goroutine.
		for request := range requests {
			request()
		}
	}()
}

// onLauncherThread runs f on the launcher's thread and waits for it.
func onLauncherThread(f func()) {
	launcher.mu.Lock()
	defer launcher.mu.Unlock()
	startLauncherLocked()
	done := make(chan struct{})
	launcher.requests <- func() {
		defer close(done)
		f()
	}
	<-done
}

func stopLauncher() {
	launcher.mu.Lock()
	defer launcher.mu.Unlock()
	if launcher.requests == nil {
		return
	}
	close(launcher.requests)
	<-launcher.finished
	launcher.requests = nil
}
