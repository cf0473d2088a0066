// Command configdoc writes the documentation of every setting to the file it is given.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/doorbuster/doorbuster/pkg/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: configdoc FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "configdoc: %v\n", err)
		os.Exit(1)
	}
}

func write(path string) error {
	var page bytes.Buffer
	if err := config.Document(&page); err != nil {
		return err
	}
	return os.WriteFile(path, page.Bytes(), 0o644)
}
