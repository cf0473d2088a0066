package harness

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
)

// readablePart bounds how much of the test's name goes into Name, in bytes.
const readablePart = 20

// Name returns a name that nothing else uses, at most 32 bytes of [a-z0-9-], beginning with a letter: fit
// for a sale's id, a bucket or a stream. It begins like the test's name.
func Name(t testing.TB) string {
	t.Helper()
	return readable(t.Name()) + "-" + randomHex()
}

func randomHex() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // Never fails: see crypto/rand.
	return hex.EncodeToString(random)
}

// readable keeps what it can of a test's name: lower case, everything else turned into single dashes.
func readable(testName string) string {
	testName = strings.TrimPrefix(testName, "Test")
	var b strings.Builder
	dash := true // No dash at the beginning.
	for _, r := range strings.ToLower(testName) {
		if b.Len() == readablePart {
			break
		}
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
			dash = false
		case !dash:
			b.WriteByte('-')
			dash = true
		}
	}
	name := strings.TrimSuffix(b.String(), "-")
	if name == "" || name[0] < 'a' {
		return "t" + name
	}
	return name
}
