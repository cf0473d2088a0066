package config

import (
	"bytes"
	"os"
	"testing"
)

func TestDocumentationIsCurrent(t *testing.T) {
	committed, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var current bytes.Buffer
	if err := Document(&current); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, current.Bytes()) {
		t.Error("docs/configuration.md is not what the structs say; run: go generate ./pkg/config")
	}
}
