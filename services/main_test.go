package services_test

import (
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
