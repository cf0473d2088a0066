// Package telemetry is what an operator sees of a running service: its log, its
// metrics and its health.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os"
)

// NewLogger returns a logger that writes to w. level is debug, info, warn or
// error; format is text or json; anything else is an error.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: readableDuration}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("log format: %q is neither text nor json", format)
	}
}

// readableDuration writes a duration as text with its unit ("1.5s"), which JSON would have as
// a number of nanoseconds.
func readableDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// SetupLog makes a logger to standard error for the named service and installs it
// as the process's default.
func SetupLog(service, level, format string) (*slog.Logger, error) {
	logger, err := NewLogger(os.Stderr, level, format)
	if err != nil {
		return nil, err
	}
	logger = logger.With("service", service)
	slog.SetDefault(logger)
	return logger, nil
}
