package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

// UserHeader is the header in which a trusted gateway names the user.
const UserHeader = "X-User-ID"

// userHeaderKey is how net/http spells UserHeader in its map.
var userHeaderKey = http.CanonicalHeaderKey(UserHeader)

// Identity tells who the user of a request is.
type Identity interface {
	// User returns the user's id, 1 to 128 printable ASCII characters without
	// spaces, or the problem to answer with.
	User(r *http.Request) (string, *Problem)
}

// ValidUser reports whether id can name a user: 1 to 128 printable ASCII
// characters without spaces.
func ValidUser(id string) bool { return isToken(id, maxUserID) }

// IdentityOptions say who vouches for users. At least one of JWTSecret, JWKS and
// TrustUserHeader is needed, and not both of the first two.
type IdentityOptions struct {
	JWTSecret       string // key of HS256 tokens
	JWKS            string // file or URL of a key set for RS, PS, ES and EdDSA tokens
	JWTIssuer       string // required claim iss, empty for any
	JWTAudience     string // required claim aud, empty for any
	TrustUserHeader bool   // X-User-ID is taken, before a token
}

// Bounds of reading the key set from its URL.
const (
	jwksTimeout  = 10 * time.Second
	jwksInterval = time.Hour
	jwksUnknown  = 30 * time.Second // between two reads because of a token with an unknown key
	jwksMaxWait  = 2 * time.Second  // of such a token for that read; then it is refused
	clockLeeway  = 30 * time.Second // between the issuer's clock and ours
)

// NewIdentity returns the Identity that the options describe. When the key set
// is a URL, it is read now, which must succeed, and again every hour and for
// unknown keys until ctx ends.
func NewIdentity(ctx context.Context, options IdentityOptions) (Identity, error) {
	if options.JWTSecret != "" && options.JWKS != "" {
		return nil, errors.New("identity: a secret and a key set cannot be used together")
	}
	var tokens *tokenIdentity
	switch {
	case options.JWTSecret != "":
		secret := []byte(options.JWTSecret)
		tokens = newTokenIdentity(options, []string{"HS256"}, func(*jwt.Token) (any, error) { return secret, nil })
	case options.JWKS != "":
		keys, err := readKeySet(ctx, options.JWKS)
		if err != nil {
			return nil, err
		}
		methods := []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
		tokens = newTokenIdentity(options, methods, keys.Keyfunc)
	case !options.TrustUserHeader:
		return nil, errors.New("identity: no secret, no key set, and the user header is not trusted")
	}
	switch {
	case !options.TrustUserHeader:
		return tokens, nil
	case tokens == nil:
		return headerIdentity{}, nil
	default:
		return headerIdentity{otherwise: tokens}, nil
	}
}

// readKeySet reads a key set from a file or, when source is a URL, from there.
func readKeySet(ctx context.Context, source string) (keyfunc.Keyfunc, error) {
	if strings.HasPrefix(source, "https://") || strings.HasPrefix(source, "http://") {
		strict := false
		keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{source}, keyfunc.Override{
			HTTPTimeout:               jwksTimeout,
			RefreshInterval:           jwksInterval,
			RefreshUnknownKID:         rate.NewLimiter(rate.Every(jwksUnknown), 1),
			RateLimitWaitMax:          jwksMaxWait,
			NoErrorReturnFirstHTTPReq: &strict,
			RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
				return func(ctx context.Context, _ error) { // the error quotes the URL, which may hold credentials
					slog.WarnContext(ctx, "key set cannot be refreshed, the old one stays in use")
				}
			},
		})
		if err != nil {
			return nil, errors.New("identity: the key set cannot be read from its URL")
		}
		return keys, nil
	}
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, fmt.Errorf("identity: read key set: %w", err)
	}
	keys, err := keyfunc.NewJWKSetJSON(text)
	if err != nil {
		return nil, fmt.Errorf("identity: key set %s: %w", source, err)
	}
	return keys, nil
}

// headerIdentity takes the user from X-User-ID, and from otherwise, if there is
// one, when the header is missing.
type headerIdentity struct{ otherwise Identity }

func (h headerIdentity) User(r *http.Request) (string, *Problem) {
	values := r.Header[userHeaderKey]
	switch {
	case len(values) == 0 && h.otherwise != nil:
		return h.otherwise.User(r)
	case len(values) == 0:
		return "", Unauthorized("the header X-User-ID is missing")
	case len(values) > 1:
		return "", InvalidField(UserHeader, "the header is given more than once")
	case !isToken(values[0], maxUserID):
		return "", InvalidField(UserHeader, "must be 1 to 128 printable ASCII characters without spaces")
	}
	return values[0], nil
}

// tokenIdentity takes the user from the claim sub of a bearer JWT. It accepts
// only the algorithms that fit its kind of key, so that nobody can pass off a
// public key as an HMAC secret.
type tokenIdentity struct {
	parser *jwt.Parser
	keys   jwt.Keyfunc
}

func newTokenIdentity(options IdentityOptions, methods []string, keys jwt.Keyfunc) *tokenIdentity {
	rules := []jwt.ParserOption{jwt.WithValidMethods(methods), jwt.WithExpirationRequired(), jwt.WithLeeway(clockLeeway)}
	if options.JWTIssuer != "" {
		rules = append(rules, jwt.WithIssuer(options.JWTIssuer))
	}
	if options.JWTAudience != "" {
		rules = append(rules, jwt.WithAudience(options.JWTAudience))
	}
	return &tokenIdentity{parser: jwt.NewParser(rules...), keys: keys}
}

func (t *tokenIdentity) User(r *http.Request) (string, *Problem) {
	text, problem := bearer(r)
	if problem != nil {
		return "", problem
	}
	var claims jwt.RegisteredClaims
	if _, err := t.parser.ParseWithClaims(text, &claims, t.keys); err != nil {
		if errors.Is(err, jwt.ErrTokenExpired) {
			return "", Unauthorized("the token has expired")
		}
		return "", Unauthorized("the token is not valid")
	}
	if !isToken(claims.Subject, maxUserID) {
		return "", Unauthorized("the token's sub must be 1 to 128 printable ASCII characters without spaces")
	}
	return claims.Subject, nil
}

// bearer returns the request's bearer token.
func bearer(r *http.Request) (string, *Problem) {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return "", Unauthorized("exactly one Authorization header with a bearer token is expected")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", Unauthorized("a bearer token is expected")
	}
	return token, nil
}

// RequireKeys lets only requests through that carry one of the keys as a bearer
// token; none does when there is no key.
func RequireKeys(keys []string, next http.Handler) http.Handler {
	callers := make(map[string]string, len(keys))
	for _, key := range keys {
		callers[key] = ""
	}
	return RequireCallers(callers, next)
}

// RequireCallers is RequireKeys for callers that have names, by their keys; Caller
// tells the handler which of them it is. The comparison takes the same time whatever
// was sent.
func RequireCallers(callers map[string]string, next http.Handler) http.Handler {
	type caller struct {
		sum  [sha256.Size]byte
		name string
	}
	wanted := make([]caller, 0, len(callers))
	for key, name := range callers {
		wanted = append(wanted, caller{sha256.Sum256([]byte(key)), name})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, problem := bearer(r)
		if problem != nil {
			Fail(w, r, problem)
			return
		}
		got := sha256.Sum256([]byte(token))
		known := -1
		for i := range wanted {
			if subtle.ConstantTimeCompare(got[:], wanted[i].sum[:]) == 1 {
				known = i
			}
		}
		if known < 0 {
			Fail(w, r, Unauthorized("the key is not valid"))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, wanted[known].name)))
	})
}

type callerKey struct{}

// Caller is the name of who sent the request, behind RequireCallers.
func Caller(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
