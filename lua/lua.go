// Package lua holds the scripts that run inside Redis and binds them to an era.
//
// The header of each .lua file is its contract: KEYS, ARGV and every return
// code. Scripts that sell, restore, read or give back carry the era they were loaded in
// as part of their text, so that a server whose memory is not the one we
// trusted does not know them (NOSCRIPT).
package lua

import (
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1.
	_ "embed"
	"encoding/hex"
	"strings"
)

var (
	//go:embed fence.lua
	fence string
	//go:embed grab.lua
	grab string
	//go:embed release.lua
	release string
	//go:embed restore.lua
	restore string
	//go:embed inspect.lua
	inspect string
	//go:embed find.lua
	find string

	// Trim is the source of trim.lua, the one script without an era.
	//go:embed trim.lua
	Trim string
)

// Era names the life of one Redis server's memory: "RANDOM-REPLID", where
// REPLID is the server's master_replid, empty where it reports none.
type Era string

// NewEra mints an era for a server.
func NewEra(replid string) Era { return Era(rand.Text() + "-" + replid) }

// Valid reports whether the era can stand inside a script's text.
func (e Era) Valid() bool {
	random, replid, ok := strings.Cut(string(e), "-")
	return ok && random != "" && alphanumeric(random) && alphanumeric(replid)
}

func alphanumeric(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Script is a script's text in one era and the name Redis gives it.
type Script struct {
	Source string
	SHA    string // SHA-1 of Source in hex
}

// Scripts are the scripts of one era.
type Scripts struct {
	Grab, Release, Restore, Inspect, Find Script
}

// In returns the scripts of an era. It panics on an era that is not Valid:
// the text goes into a script.
func In(era Era) Scripts {
	if !era.Valid() {
		panic("lua: not an era: " + string(era))
	}
	_, replid, _ := strings.Cut(string(era), "-")
	head := "local ERA = '" + string(era) + "'\nlocal REPLID = '" + replid + "'\n" + fence
	bind := func(body string) Script {
		source := head + body
		sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by SHA-1.
		return Script{Source: source, SHA: hex.EncodeToString(sum[:])}
	}
	return Scripts{
		Grab: bind(grab), Release: bind(release), Restore: bind(restore), Inspect: bind(inspect), Find: bind(find),
	}
}

// All lists the scripts in the order they are loaded.
func (s Scripts) All() []Script { return []Script{s.Grab, s.Release, s.Restore, s.Inspect, s.Find} }
