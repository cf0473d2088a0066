package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// splitStatements cuts schema.sql by its own rules: a comment is a line of its
// own, a statement ends with a semicolon at the end of a line.
func splitStatements(schema string) []string {
	var all, lines []string
	for line := range strings.Lines(schema) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" || strings.HasPrefix(strings.TrimSpace(line), "--") {
			continue
		}
		last, ended := strings.CutSuffix(line, ";")
		lines = append(lines, last)
		if ended {
			all = append(all, strings.Join(lines, "\n"))
			lines = nil
		}
	}
	if lines != nil {
		all = append(all, strings.Join(lines, "\n"))
	}
	return all
}

// fingerprint changes with the statements, not with comments or layout.
func fingerprint(schema string) string {
	words := strings.Fields(strings.Join(splitStatements(schema), ";"))
	sum := sha256.Sum256([]byte(strings.Join(words, " ")))
	return hex.EncodeToString(sum[:])
}

var (
	createTable  = regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS (\w+) \($`)
	tableOptions = regexp.MustCompile(`^\) ENGINE=.*$`)
	plainKey     = regexp.MustCompile(`^  KEY (\w+) (\(.*\)),?$`)
	uniqueKey    = regexp.MustCompile(`UNIQUE KEY \w+ `)
	characterSet = regexp.MustCompile(` CHARACTER SET \w+ COLLATE \w+`)
	numbered     = regexp.MustCompile(`^  (\w+) +BIGINT NOT NULL AUTO_INCREMENT,$`)
)

// sqliteStatements turns one CREATE TABLE of schema.sql into what SQLite
// understands: the table, then its indexes.
func sqliteStatements(statement string) []string {
	var table, numberedColumn string
	var lines, indexes []string
	for line := range strings.SplitSeq(statement, "\n") {
		line = characterSet.ReplaceAllString(line, "")
		line = strings.ReplaceAll(line, "DATETIME(3)", "DATETIME") // The driver knows times by this name.
		line = uniqueKey.ReplaceAllString(line, "UNIQUE ")
		if m := createTable.FindStringSubmatch(line); m != nil {
			table = m[1]
		}
		if m := numbered.FindStringSubmatch(line); m != nil {
			numberedColumn = m[1]
			line = "  " + m[1] + " INTEGER PRIMARY KEY AUTOINCREMENT,"
		}
		switch m := plainKey.FindStringSubmatch(line); {
		case m != nil:
			indexes = append(indexes, "CREATE INDEX IF NOT EXISTS "+m[1]+" ON "+table+" "+m[2])
		case numberedColumn != "" && strings.TrimRight(line, ",") == "  PRIMARY KEY ("+numberedColumn+")":
		case tableOptions.MatchString(line):
			// The line before may have lost its successor.
			lines[len(lines)-1] = strings.TrimRight(lines[len(lines)-1], ",")
			lines = append(lines, ")")
		default:
			lines = append(lines, line)
		}
	}
	return append([]string{strings.Join(lines, "\n")}, indexes...)
}
