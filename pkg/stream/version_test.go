package stream

import (
	"errors"
	"testing"
)

func TestOnlyServersThatAreNewEnoughAreSupported(t *testing.T) {
	for version, supported := range map[string]bool{
		"2.9.25": false, "2.10.29": false, "1.4.1": false,
		"2.11.0": true, "2.11.0-RC.1": true, "2.15.2": true, "3.0.0": true,
	} {
		err := supportedVersion(version)
		if supported && err != nil || !supported && !errors.Is(err, ErrServerTooOld) {
			t.Errorf("%s: %v", version, err)
		}
	}
	for _, version := range []string{"", "new"} {
		if err := supportedVersion(version); err == nil || errors.Is(err, ErrServerTooOld) {
			t.Errorf("%q: %v", version, err)
		}
	}
}
