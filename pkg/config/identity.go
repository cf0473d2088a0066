package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Identity says who vouches for the user of a request.
type Identity struct {
	JWTSecret       string `name:"jwt-secret" secret:"" minlen:"32" xor:"jwt" placeholder:"SECRET" help:"Key of users' HS256 tokens. The user is the claim sub."`
	JWKS            string `name:"jwks" secret:"url" xor:"jwt" placeholder:"FILE|URL" help:"Key set of users' RS, PS, ES and EdDSA tokens: a file, or a URL that is read again every hour."`
	JWTIssuer       string `name:"jwt-issuer" help:"Required issuer (claim iss) of the tokens. Empty accepts any."`
	JWTAudience     string `name:"jwt-audience" help:"Required audience (claim aud) of the tokens. Empty accepts any."`
	TrustUserHeader bool   `name:"trust-user-header" help:"Take the user from the header X-User-ID. Only behind a gateway that sets it and drops what clients send."`
}

// Validate refuses a service to which no user could prove who they are.
func (i *Identity) Validate() error {
	if i.JWTSecret == "" && i.JWKS == "" && !i.TrustUserHeader {
		return errors.New("one of --jwt-secret, --jwks or --trust-user-header must be given")
	}
	return nil
}

// AdminKey guards the control plane.
type AdminKey struct {
	Key string `name:"admin-key" secret:"" minlen:"16" required:"" placeholder:"KEY" help:"Key that callers of the admin API send as a bearer token."`
}

// Operator is who the books say it was when the one admin key was used.
const Operator = "operator"

// AdminKeys are more keys of the control plane, with the names of who has them.
type AdminKeys struct {
	Keys []string `name:"admin-keys" secret:"" placeholder:"NAME=KEY,..." help:"More keys of the admin API, comma separated, each with the name that flows and history give to who sends it; admin-key is called operator there. A name may have several keys."`
}

// namedKey is a name of 1 to 64 letters, digits and . _ @ -, and a key.
var namedKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}=.{16,}$`)

// Validate checks names and keys. Its error does not tell the keys.
func (a *AdminKeys) Validate() error {
	seen := make(map[string]bool, len(a.Keys))
	for i, one := range a.Keys {
		if !namedKey.MatchString(one) {
			return fmt.Errorf("--admin-keys: entry %d must be NAME=KEY: a name of 1 to 64 letters, digits and . _ @ -, and a key of at least 16 characters", i+1)
		}
		_, key, _ := strings.Cut(one, "=")
		if seen[key] {
			return fmt.Errorf("--admin-keys: entry %d has a key that another one has, too", i+1)
		}
		seen[key] = true
	}
	return nil
}

// Callers returns the names of all callers by their keys; the one admin key wins.
func (a *AdminKeys) Callers(adminKey string) map[string]string {
	callers := make(map[string]string, len(a.Keys)+1)
	for _, one := range a.Keys {
		name, key, _ := strings.Cut(one, "=")
		callers[key] = name
	}
	callers[adminKey] = Operator
	return callers
}
