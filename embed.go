// Package doorbuster holds the files that other packages embed.
package doorbuster

import _ "embed"

// Schema is schema.sql, the truth about the tables of the ledger.
//
//go:embed schema.sql
var Schema string
