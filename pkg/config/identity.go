package config

import "errors"

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
