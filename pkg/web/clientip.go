package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The headers in which a proxy may say for whom it asks.
const (
	XForwardedFor = "x-forwarded-for"
	Forwarded     = "forwarded" // RFC 7239
)

// ClientAddress tells from which address a request comes: that of the
// connection or, when a trusted proxy holds the connection, the one that the proxies
// name. Only one header is believed, the one the proxies write: in another one they would
// pass on whatever the client sent.
//
// Each proxy appends the address it was called from, so the list is read from its
// end: trusted proxies are passed over, and the first other address is the client's. What
// stands before it may be forged and is never looked at.
type ClientAddress struct {
	trusted []netip.Prefix
	header  string                                          // as net/http spells it
	cut     func(list string) (before, last string)         // takes the last element off
	parse   func(element string) (addr netip.Addr, ok bool) // whom an element names
}

// NewClientAddress returns a ClientAddress that trusts the proxies in these
// prefixes; with none it never looks at a header. header is XForwardedFor or Forwarded.
func NewClientAddress(trusted []netip.Prefix, header string) (*ClientAddress, error) {
	c := &ClientAddress{trusted: trusted, header: http.CanonicalHeaderKey(header)}
	switch header {
	case XForwardedFor:
		c.cut, c.parse = cutPlain, parseHop
	case Forwarded:
		c.cut, c.parse = cutQuoted, parseForwarded
	default:
		return nil, fmt.Errorf("client address: the header must be %s or %s, not %q", XForwardedFor, Forwarded, header)
	}
	return c, nil
}

// Of returns the address, without port and zone and an IPv4 one as such; "" when
// the connection has none. Where an element of the list can't be read, or is obfuscated, the
// address is that of the proxy who wrote it.
func (c *ClientAddress) Of(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	peer, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	plain := plainAddress(peer)
	if len(c.trusted) == 0 || !c.trusts(plain) {
		if plain == peer {
			return host // spares making the text again
		}
		return plain.String()
	}
	return c.named(r.Header[c.header], plain).String()
}

// named walks the proxies' list from its end; proxy holds the connection.
func (c *ClientAddress) named(lists []string, proxy netip.Addr) netip.Addr {
	for _, list := range slices.Backward(lists) {
		for list != "" {
			var element string
			list, element = c.cut(list)
			if element = strings.Trim(element, " \t"); element == "" {
				continue // RFC 9110 lets lists have empty elements
			}
			addr, ok := c.parse(element)
			if !ok {
				return proxy
			}
			if !c.trusts(addr) {
				return addr
			}
			proxy = addr
		}
	}
	return proxy
}

func (c *ClientAddress) trusts(addr netip.Addr) bool {
	for _, p := range c.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func plainAddress(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// cutPlain takes the last element off a list that knows no quotes.
func cutPlain(list string) (before, last string) {
	comma := strings.LastIndexByte(list, ',')
	return list[:max(comma, 0)], list[comma+1:]
}

// cutQuoted is cutPlain for a list whose elements may hold quoted strings. It looks
// from the end, where trusted proxies wrote: an open quote before their
// elements changes nothing.
func cutQuoted(list string) (before, last string) {
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i] {
		case ',':
			return list[:i], list[i+1:]
		case '"':
			if i = openingQuote(list[:i]); i < 0 {
				return "", list
			}
		}
	}
	return "", list
}

// openingQuote finds the quote that begins the string which ended behind text.
func openingQuote(text string) int {
	for {
		at := strings.LastIndexByte(text, '"')
		if at < 0 {
			return -1
		}
		before := text[:at]
		if escapes := len(before) - len(strings.TrimRight(before, `\`)); escapes%2 == 0 {
			return at
		}
		text = before
	}
}

// parseHop reads an element of X-Forwarded-For: an address, or one with a port.
func parseHop(element string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(element); err == nil {
		return usable(addr)
	}
	return parseNode(element)
}

// parseForwarded reads an element of Forwarded: pairs such as for=192.0.2.1;proto=https.
func parseForwarded(element string) (netip.Addr, bool) {
	node, found := "", false
	for rest, more := element, true; more; {
		var name, value string
		var ok bool
		if name, value, rest, more, ok = cutPair(rest); !ok {
			return netip.Addr{}, false
		}
		if strings.EqualFold(name, "for") {
			if found {
				return netip.Addr{}, false
			}
			node, found = value, true
		}
	}
	return parseNode(node)
}

// cutPair takes the first pair off an element. An empty one, which RFC 7239 allows,
// has no name.
func cutPair(text string) (name, value, rest string, more, ok bool) {
	text = strings.TrimLeft(text, " \t")
	if text == "" || text[0] == ';' {
		return "", "", strings.TrimPrefix(text, ";"), text != "", true
	}
	name, text, found := strings.Cut(text, "=")
	if !found || !isWord(name, "") {
		return "", "", "", false, false
	}
	if strings.HasPrefix(text, `"`) {
		value, text, ok = unquote(text[1:])
	} else {
		end := strings.IndexByte(text, ';')
		if end < 0 {
			end = len(text)
		}
		value, text = strings.TrimRight(text[:end], " \t"), text[end:]
		// Addresses with a port and IPv6 ones must be quoted; not every proxy does so.
		ok = isWord(value, ":[]")
	}
	text = strings.TrimLeft(text, " \t")
	if !ok || text != "" && text[0] != ';' {
		return "", "", "", false, false
	}
	return name, value, strings.TrimPrefix(text, ";"), text != "", true
}

// unquote reads a quoted string behind its first quote.
func unquote(text string) (value, rest string, ok bool) {
	if plain := strings.IndexAny(text, `"\`); plain >= 0 && text[plain] == '"' {
		return text[:plain], text[plain+1:], true
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return out.String(), text[i+1:], true
		case '\\':
			if i++; i == len(text) {
				return "", "", false
			}
		}
		out.WriteByte(text[i])
	}
	return "", "", false
}

// isWord reports whether text is a token of RFC 9110, or made of these characters too.
func isWord(text, more string) bool {
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return text != ""
}

// parseNode reads a node of RFC 7239: 192.0.2.1, 192.0.2.1:80, [2001:db8::1] or
// [2001:db8::1]:80. "unknown" and obfuscated names are no address.
func parseNode(node string) (netip.Addr, bool) {
	host, port, found := strings.Cut(node, ":")
	six := strings.HasPrefix(node, "[")
	if six {
		inside, behind, closed := strings.Cut(node[1:], "]")
		if host = inside; !closed {
			return netip.Addr{}, false
		}
		if port, found = strings.CutPrefix(behind, ":"); !found && behind != "" {
			return netip.Addr{}, false
		}
	}
	if found && !isPort(port) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Is4() == six {
		return netip.Addr{}, false
	}
	return usable(addr)
}

// isPort reports whether text is a port, or an obfuscated one (RFC 7239, section 6).
func isPort(text string) bool {
	if strings.HasPrefix(text, "_") {
		return len(text) > 1 && isWord(text, "")
	}
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// usable refuses 0.0.0.0 and ::, which are nobody's address.
func usable(addr netip.Addr) (netip.Addr, bool) {
	addr = plainAddress(addr)
	return addr, !addr.IsUnspecified()
}
