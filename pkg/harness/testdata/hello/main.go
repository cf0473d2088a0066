// Command hello greets its argument, to be built and run by the tests of the harness.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println("hello", os.Args[1]) }
