package telemetry

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

func TestDurationsInTheLogHaveTheirUnit(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("restored", "took", 1500*time.Millisecond)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["took"] != "1.5s" {
		t.Errorf("%s", out.String())
	}
}

func TestALoggerNeedsALevelAndAFormatThatExist(t *testing.T) {
	for _, wrong := range [][2]string{{"loud", "json"}, {"info", "xml"}} {
		if _, err := NewLogger(&bytes.Buffer{}, wrong[0], wrong[1]); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}
