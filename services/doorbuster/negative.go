package main

import (
	"slices"
	"strconv"
	"strings"
)

// bareNegative lets negative numbers be written as people do. Kong takes "-1" for a
// flag, so "--limit -1" becomes "--limit=-1", and the units of
// "sale adjust SALE SKU -10", the last argument, go to the end, behind "--".
func bareNegative(args []string) []string {
	if slices.Contains(args, "--") {
		return args
	}
	written := make([]string, 0, len(args)+1)
	var units []string
	for _, arg := range args {
		last := len(written) - 1
		switch {
		case !isNegative(arg) || last < 0:
			written = append(written, arg)
		case takesValue(written[last]):
			written[last] += "=" + arg
		case units == nil && args[0] == "sale" && slices.Contains(args, "adjust"):
			units = []string{"--", arg}
		default:
			written = append(written, arg)
		}
	}
	return append(written, units...)
}

func isNegative(arg string) bool {
	n, err := strconv.ParseInt(arg, 10, 64)
	return err == nil && n < 0
}

// takesValue tells a flag whose value is the next argument; --json has none.
func takesValue(arg string) bool {
	return strings.HasPrefix(arg, "--") && !strings.Contains(arg, "=") && arg != "--json"
}
