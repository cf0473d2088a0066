package config

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// checkLimits holds every setting of the chosen command against the range in its tag.
func checkLimits(ctx *kong.Context, settings *file) error {
	for _, flag := range ctx.Flags() {
		rule, err := breach(flag)
		if err != nil {
			return err
		}
		if rule == "" {
			continue
		}
		where := ""
		if origin := originOf(ctx, flag, settings); origin != originFlag {
			where = " (from " + origin + ")"
		}
		if isSecret(flag) {
			return fmt.Errorf("--%s: %s%s", flag.Name, rule, where)
		}
		return fmt.Errorf("--%s %v: %s%s", flag.Name, flag.Target.Interface(), rule, where)
	}
	return nil
}

// breach returns the rule that the flag's value breaks, or "".
func breach(flag *kong.Flag) (string, error) {
	limits, err := limitsOf(flag)
	if err != nil {
		return "", err
	}
	var broken bool
	switch flag.Target.Kind() {
	case reflect.String:
		length := flag.Target.Len()
		broken = length > 0 && limits.min != nil && length < int(*limits.min)
	case reflect.Slice: // of texts
		for i := range flag.Target.Len() {
			broken = broken || limits.min != nil && flag.Target.Index(i).Len() < int(*limits.min)
		}
	case reflect.Float64:
		broken = limits.refuses(flag.Target.Float())
	case reflect.Int, reflect.Int64:
		broken = limits.refuses(float64(flag.Target.Int()))
	}
	if !broken {
		return "", nil
	}
	return "must be " + limits.text, nil
}

// limits is the range of a setting. Durations count in nanoseconds, strings in bytes.
type limits struct {
	min, max *float64
	text     string // "1 to 1000", "at least 16 characters", "" when unlimited
}

func (l limits) refuses(value float64) bool {
	// Written so that NaN, which compares to nothing, is refused.
	return l.min != nil && !(value >= *l.min) || l.max != nil && !(value <= *l.max)
}

// limitsOf reads the range from the tag: min and max for numbers and durations,
// minlen for strings and for each one in a list of them. A malformed tag is a programming error, found by the tests.
func limitsOf(flag *kong.Flag) (limits, error) {
	var l limits
	var err error
	low, high := flag.Tag.Get("min"), flag.Tag.Get("max")
	switch {
	case flag.Tag.Has("minlen"):
		l.min, err = parseLimit(flag, "minlen")
		l.text = "at least " + flag.Tag.Get("minlen") + " characters"
		return l, err
	case low != "" && high != "":
		l.text = low + " to " + high
	case low != "":
		l.text = "at least " + low
	case high != "":
		l.text = "at most " + high
	}
	if l.min, err = parseLimit(flag, "min"); err != nil {
		return limits{}, err
	}
	if l.max, err = parseLimit(flag, "max"); err != nil {
		return limits{}, err
	}
	return l, nil
}

func parseLimit(flag *kong.Flag, name string) (*float64, error) {
	text := flag.Tag.Get(name)
	if text == "" {
		return nil, nil
	}
	if flag.Target.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("tag %s of --%s: %w", name, flag.Name, err)
		}
		value := float64(d)
		return &value, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("tag %s of --%s: %w", name, flag.Name, err)
	}
	return &value, nil
}

// describeLimits appends the allowed range to the meaning that --help shows.
func describeLimits(parser *kong.Kong) error {
	for _, flag := range allFlags(parser.Model.Node) {
		l, err := limitsOf(flag)
		if err != nil {
			return err
		}
		if l.text != "" {
			flag.Help += " Allowed: " + l.text + "."
		}
	}
	return nil
}
