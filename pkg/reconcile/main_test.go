package reconcile

import (
	"os"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimStep) != "" {
		runVictim()
	}
	harness.Main(m)
}
