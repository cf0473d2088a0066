package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
)

// live shows how far something has come: one line that changes on a terminal,
// a line now and then anywhere else.
type live struct {
	w        io.Writer
	terminal bool
	last     time.Time
	pending  string
}

// quietly is how often a line is written where lines can't change.
const quietly = 2 * time.Second

// eraseLine empties the line on a terminal.
const eraseLine = "\r\x1b[K"

func newLive(w io.Writer) *live {
	file, ok := w.(*os.File)
	return &live{w: w, terminal: ok && isatty.IsTerminal(file.Fd()), last: time.Now()}
}

// show replaces what is shown.
func (l *live) show(text string) {
	if l.terminal {
		// Without wrapping: a line that is longer than the terminal is wide is cut.
		fmt.Fprint(l.w, eraseLine+"\x1b[?7l"+text+"\x1b[?7h")
		return
	}
	l.pending = text
	if time.Since(l.last) >= quietly {
		l.last, l.pending = time.Now(), ""
		fmt.Fprintln(l.w, text)
	}
}

// note writes a line that stays.
func (l *live) note(text string) {
	if l.terminal {
		text = eraseLine + text
	}
	fmt.Fprintln(l.w, text)
}

// end leaves what was shown last.
func (l *live) end() {
	switch {
	case l.terminal:
		fmt.Fprintln(l.w)
	case l.pending != "":
		fmt.Fprintln(l.w, l.pending)
		l.pending = ""
	}
}

// barWidth is the width of a bar, in characters.
const barWidth = 20

// bar draws done of all.
func bar(done, all int64) string {
	filled := 0
	if all > 0 {
		filled = int(min(done, all) * barWidth / all)
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", barWidth-filled) + "]"
}
