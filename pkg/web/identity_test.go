package web

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
)

const secret = "0123456789abcdef0123456789abcdef"

// claims are those of a token that is accepted, with changes.
func claims(changes jwt.MapClaims) jwt.MapClaims {
	all := jwt.MapClaims{"sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "iss": "shop", "aud": "grab"}
	for name, value := range changes {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	return all
}

// sign makes a token. kid is left out when empty.
func sign(t testing.TB, method jwt.SigningMethod, key any, kid string, c jwt.Claims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func identity(t testing.TB, options IdentityOptions) Identity {
	t.Helper()
	id, err := NewIdentity(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// userOf asks who the user of a request with a bearer token is.
func userOf(t testing.TB, id Identity, token string) (string, *Problem) {
	t.Helper()
	return id.User(newRequest(t, http.MethodGet, "/", "", "Authorization", "Bearer "+token))
}

func wantUnauthorized(t *testing.T, user string, problem *Problem) {
	t.Helper()
	if user != "" || problem == nil || problem.Status != http.StatusUnauthorized || problem.Code != CodeUnauthorized {
		t.Errorf("user %q, problem %v", user, problem)
	}
}

func TestTokensAreCheckedWhole(t *testing.T) {
	id := identity(t, IdentityOptions{JWTSecret: secret, JWTIssuer: "shop", JWTAudience: "grab"})
	if user, problem := userOf(t, id, sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(nil))); user != "alice" || problem != nil {
		t.Fatalf("%q, %v", user, problem)
	}
	now := time.Now()
	for name, changes := range map[string]jwt.MapClaims{
		"expired":             {"exp": now.Add(-time.Hour).Unix()},
		"without an end":      {"exp": nil},
		"not yet valid":       {"nbf": now.Add(time.Hour).Unix()},
		"of another issuer":   {"iss": "shop2"},
		"without an issuer":   {"iss": nil},
		"for somebody else":   {"aud": []string{"admin"}},
		"for nobody":          {"aud": nil},
		"without a user":      {"sub": nil},
		"with an empty user":  {"sub": ""},
		"with a user of two":  {"sub": "alice bob"},
		"with a number":       {"sub": 17},
		"with a long user":    {"sub": strings.Repeat("a", 129)},
		"with a control byte": {"sub": "alice\n"},
		"with an umlaut":      {"sub": "älice"},
	} {
		t.Run(name, func(t *testing.T) {
			user, problem := userOf(t, id, sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(changes)))
			wantUnauthorized(t, user, problem)
		})
	}
}

func TestAnyIssuerAndAudienceWhenNoneIsRequired(t *testing.T) {
	id := identity(t, IdentityOptions{JWTSecret: secret})
	token := sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(jwt.MapClaims{"iss": nil, "aud": "x", "sub": strings.Repeat("a", 128)}))
	if user, problem := userOf(t, id, token); len(user) != 128 || problem != nil {
		t.Errorf("%q, %v", user, problem)
	}
}

func TestForgedTokensAreRefused(t *testing.T) {
	id := identity(t, IdentityOptions{JWTSecret: secret})
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(nil))
	parts := strings.Split(good, ".")
	for name, token := range map[string]string{
		"another secret":    sign(t, jwt.SigningMethodHS256, []byte("another"), "", claims(nil)),
		"another HMAC":      sign(t, jwt.SigningMethodHS512, []byte(secret), "", claims(nil)),
		"no algorithm":      sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", claims(nil)),
		"a key pair":        sign(t, jwt.SigningMethodRS256, rsaKey, "", claims(nil)),
		"no signature":      parts[0] + "." + parts[1] + ".",
		"a cut off token":   parts[0] + "." + parts[1],
		"changed claims":    parts[0] + "." + parts[1] + "A." + parts[2],
		"rubbish":           "rubbish",
		"a token and more":  good + " " + good,
		"nothing, a space":  "",
		"another signature": parts[0] + "." + parts[1] + "." + parts[0],
	} {
		t.Run(name, func(t *testing.T) {
			user, problem := userOf(t, id, token)
			wantUnauthorized(t, user, problem)
		})
	}
}

func TestTheHeaderMustHoldOneBearerToken(t *testing.T) {
	id := identity(t, IdentityOptions{JWTSecret: secret})
	good := sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(nil))
	for _, headers := range [][]string{
		nil,
		{"Authorization", ""},
		{"Authorization", good},
		{"Authorization", "Basic " + good},
		{"Authorization", "Bearer " + good, "Authorization", "Bearer " + good},
		{"X-User-ID", "alice"},
	} {
		user, problem := id.User(newRequest(t, http.MethodGet, "/", "", headers...))
		wantUnauthorized(t, user, problem)
	}
	if user, problem := id.User(newRequest(t, http.MethodGet, "/", "", "Authorization", "bearer "+good)); user != "alice" {
		t.Errorf("the scheme has no case: %v", problem)
	}
}

func TestTheUserHeaderCountsOnlyWhenTrusted(t *testing.T) {
	token := "Bearer " + sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(nil))
	both := identity(t, IdentityOptions{JWTSecret: secret, TrustUserHeader: true})
	header := identity(t, IdentityOptions{TrustUserHeader: true})
	tokens := identity(t, IdentityOptions{JWTSecret: secret})
	for _, test := range []struct {
		name    string
		id      Identity
		headers []string
		want    string
		status  int
	}{
		{"trusted, and wins over the token", both, []string{"x-user-id", "bob", "Authorization", token}, "bob", 0},
		{"missing, the token counts", both, []string{"Authorization", token}, "alice", 0},
		{"not trusted, the token counts", tokens, []string{"X-User-ID", "bob", "Authorization", token}, "alice", 0},
		{"missing, and there are no tokens", header, []string{"Authorization", token}, "", 401},
		{"twice", header, []string{"X-User-ID", "bob", "X-User-ID", "eve"}, "", 400},
		{"empty", header, []string{"X-User-ID", ""}, "", 400},
		{"with a space", header, []string{"X-User-ID", "bob eve"}, "", 400},
		{"empty does not fall through to the token", both, []string{"X-User-ID", "", "Authorization", token}, "", 400},
		{"128 characters", header, []string{"X-User-ID", strings.Repeat("~", 128)}, strings.Repeat("~", 128), 0},
		{"129 characters", header, []string{"X-User-ID", strings.Repeat("~", 129)}, "", 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			user, problem := test.id.User(newRequest(t, http.MethodGet, "/", "", test.headers...))
			status := 0
			if problem != nil {
				status = problem.Status
			}
			if user != test.want || status != test.status {
				t.Errorf("user %q, problem %v", user, problem)
			}
		})
	}
}

// keySet returns a JWKS with the public halves of the keys, by kid.
func keySet(t testing.TB, keys map[string]crypto.PublicKey) []byte {
	t.Helper()
	storage := jwkset.NewMemoryStorage()
	for kid, key := range keys {
		jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: kid}})
		if err != nil {
			t.Fatal(err)
		}
		if err := storage.KeyWrite(t.Context(), jwk); err != nil {
			t.Fatal(err)
		}
	}
	set, err := storage.JSONPublic(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestKeySetFromAFile(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "keys.json")
	set := keySet(t, map[string]crypto.PublicKey{"r": &rsaKey.PublicKey, "e": &ecKey.PublicKey, "d": edPublic})
	if err := os.WriteFile(path, set, 0o600); err != nil {
		t.Fatal(err)
	}
	id := identity(t, IdentityOptions{JWKS: path})
	for name, token := range map[string]string{
		"RSA":                sign(t, jwt.SigningMethodRS256, rsaKey, "r", claims(nil)),
		"RSA-PSS":            sign(t, jwt.SigningMethodPS512, rsaKey, "r", claims(nil)),
		"ECDSA":              sign(t, jwt.SigningMethodES256, ecKey, "e", claims(nil)),
		"EdDSA":              sign(t, jwt.SigningMethodEdDSA, edKey, "d", claims(nil)),
		"no kid, tries each": sign(t, jwt.SigningMethodES256, ecKey, "", claims(nil)),
	} {
		if user, problem := userOf(t, id, token); user != "alice" || problem != nil {
			t.Errorf("%s: %q, %v", name, user, problem)
		}
	}
	// The attack on verifiers that let the token choose the algorithm: the public
	// key, which everybody has, used as an HMAC secret.
	der, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for name, token := range map[string]string{
		"public key as a secret": sign(t, jwt.SigningMethodHS256, public, "r", claims(nil)),
		"key set as a secret":    sign(t, jwt.SigningMethodHS256, set, "", claims(nil)),
		"another key's kid":      sign(t, jwt.SigningMethodES256, ecKey, "r", claims(nil)),
		"unknown kid":            sign(t, jwt.SigningMethodES256, ecKey, "x", claims(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			user, problem := userOf(t, id, token)
			wantUnauthorized(t, user, problem)
		})
	}
}

func TestKeySetFromAURLFollowsRotation(t *testing.T) {
	_, first, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var set atomic.Pointer[[]byte]
	var reads atomic.Int64
	publish := func(kid string, key ed25519.PrivateKey) {
		text := keySet(t, map[string]crypto.PublicKey{kid: key.Public()})
		set.Store(&text)
	}
	publish("1", first)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reads.Add(1)
		_, _ = w.Write(*set.Load())
	}))
	defer issuer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer http.DefaultClient.CloseIdleConnections()
	id, err := NewIdentity(ctx, IdentityOptions{JWKS: issuer.URL})
	if err != nil {
		t.Fatal(err)
	}
	if user, problem := userOf(t, id, sign(t, jwt.SigningMethodEdDSA, first, "1", claims(nil))); user != "alice" {
		t.Fatal(problem)
	}
	publish("2", second)
	if user, problem := userOf(t, id, sign(t, jwt.SigningMethodEdDSA, second, "2", claims(nil))); user != "alice" {
		t.Fatal(problem)
	}
	user, problem := userOf(t, id, sign(t, jwt.SigningMethodEdDSA, first, "1", claims(nil)))
	wantUnauthorized(t, user, problem)
	// Unknown keys must not let a stranger make us hammer the issuer.
	for range 20 {
		user, problem := userOf(t, id, sign(t, jwt.SigningMethodEdDSA, first, "forged", claims(nil)))
		wantUnauthorized(t, user, problem)
	}
	if reads.Load() != 2 {
		t.Errorf("the issuer was asked %d times, want 2", reads.Load())
	}
}

func TestIdentityThatCannotBeMade(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	folder := t.TempDir()
	broken := filepath.Join(folder, "broken.json")
	if err := os.WriteFile(broken, []byte(`{"keys":[{"kty":"RSA"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string]IdentityOptions{
		"nobody vouches":  {},
		"two kinds":       {JWTSecret: secret, JWKS: broken},
		"no such file":    {JWKS: filepath.Join(folder, "missing.json")},
		"not a key set":   {JWKS: broken},
		"issuer is down":  {JWKS: strings.Replace(down.URL, "http://", "http://user:hunter2@", 1)},
		"user header too": {JWKS: broken, TrustUserHeader: true},
	} {
		id, err := NewIdentity(t.Context(), options)
		if err == nil || id != nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACallerIsKnownByItsKey(t *testing.T) {
	const key = "a-key-of-16-bytes-or-more"
	callers := map[string]string{key: "ann", "another-key-of-the-same": "ann", "a-key-of-somebody-else": "ben"}
	handler := RequireCallers(callers, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, Caller(r.Context())) }))
	for key, name := range callers {
		if w := serve(handler, newRequest(t, http.MethodGet, "/", "", "Authorization", "Bearer "+key)); w.Code != http.StatusOK || w.Body.String() != name {
			t.Errorf("%d %s, want %s", w.Code, w.Body, name)
		}
	}
	for _, sent := range []string{"", "Bearer", "Bearer ", "Bearer " + key[1:], "Bearer " + key + "x", "Bearer  " + key, "Basic " + key, key} {
		w := serve(handler, newRequest(t, http.MethodGet, "/", "", "Authorization", sent))
		if body := problemOf(t, w); w.Code != http.StatusUnauthorized || body["code"] != CodeUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%q: %d %s", sent, w.Code, w.Body)
		}
	}
}

func TestAnyOfSeveralKeysLetsIn(t *testing.T) {
	keys := []string{"the-first-key-of-many", "the-second-key-of-many"}
	inside := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })
	for _, key := range keys {
		if w := serve(RequireKeys(keys, inside), newRequest(t, http.MethodGet, "/", "", "Authorization", "Bearer "+key)); w.Code != http.StatusOK {
			t.Errorf("%s: %d", key, w.Code)
		}
	}
	for _, known := range [][]string{nil, keys} {
		for _, sent := range []string{"", "Bearer ", "Bearer " + keys[0] + keys[1], "Bearer " + keys[0] + "," + keys[1]} {
			if w := serve(RequireKeys(known, inside), newRequest(t, http.MethodGet, "/", "", "Authorization", sent)); w.Code != http.StatusUnauthorized {
				t.Errorf("of %d keys, %q lets in: %d", len(known), sent, w.Code)
			}
		}
	}
}

func BenchmarkTokenHS256(b *testing.B) {
	id := identity(b, IdentityOptions{JWTSecret: secret})
	r := newRequest(b, http.MethodGet, "/", "", "Authorization", "Bearer "+sign(b, jwt.SigningMethodHS256, []byte(secret), "", claims(nil)))
	b.ReportAllocs()
	for b.Loop() {
		if _, problem := id.User(r); problem != nil {
			b.Fatal(problem)
		}
	}
}

func BenchmarkTokenES256(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "keys.json")
	if err := os.WriteFile(path, keySet(b, map[string]crypto.PublicKey{"e": &key.PublicKey}), 0o600); err != nil {
		b.Fatal(err)
	}
	id := identity(b, IdentityOptions{JWKS: path})
	r := newRequest(b, http.MethodGet, "/", "", "Authorization", "Bearer "+sign(b, jwt.SigningMethodES256, key, "e", claims(nil)))
	b.ReportAllocs()
	for b.Loop() {
		if _, problem := id.User(r); problem != nil {
			b.Fatal(problem)
		}
	}
}
