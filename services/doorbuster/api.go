package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// apiFlags say where the admin API is.
type apiFlags struct {
	config.AdminURL
	config.APIKey
}

// errNoKey says that a command needs the admin key.
var errNoKey = errors.New("give the admin key in the variable DOORBUSTER_ADMIN_KEY or by --admin-key")

func (f *apiFlags) client() (*api, error) {
	if f.Key == "" {
		return nil, errNoKey
	}
	return newAPI(adminAddress(f.AdminURL), f.Key), nil
}

// api calls the admin API, and as some user the API for the crowd.
type api struct {
	at   address
	base string // the address without a slash at its end
	key  string
	http *http.Client
}

// Bounds of one call. The longest is a reconcile or a verification of a large sale.
const (
	callTimeout = 90 * time.Second
	maxAnswer   = 64 << 20 // bytes
)

func newAPI(at address, key string) *api {
	return &api{at: at, base: strings.TrimSuffix(at.url, "/"), key: key, http: &http.Client{
		Timeout: callTimeout,
		// Followed, a redirect would carry the key to wherever it leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (a *api) close() { a.http.CloseIdleConnections() }

// problem is an answer that is no success.
type problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
}

func (p *problem) Error() string {
	text := fmt.Sprintf("%s (%d)", p.Code, p.Status)
	if p.Field != "" {
		text += " " + p.Field
	}
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

// call is one request to the API.
type call struct {
	method string
	path   []string // segments, escaped here
	query  url.Values
	body   any    // nil for none
	key    string // Idempotency-Key, "" for none
	user   string // "" for the operator
}

// get makes a call and decodes its answer.
func get[T any](ctx context.Context, a *api, c call) (T, error) {
	var out T
	text, err := a.do(ctx, c)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("read the answer of %s: %w", a.base, err)
	}
	return out, nil
}

// ask makes one call with the admin key and prints its answer: as it came, or by show.
func ask[T any](ctx context.Context, flags *apiFlags, term terminal, asJSON bool, c call, show func(T) error) error {
	a, err := flags.client()
	if err != nil {
		return err
	}
	defer a.close()
	text, err := a.do(ctx, c)
	if err != nil {
		return err
	}
	return answered(term, asJSON, text, show)
}

// answered prints an answer: as it came, or by show.
func answered[T any](term terminal, asJSON bool, text json.RawMessage, show func(T) error) error {
	if asJSON {
		return writeJSON(term.out, text)
	}
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return show(v)
}

// do makes a call and returns the body of a success, or a *problem, bare unless the
// service does not know the path.
func (a *api) do(ctx context.Context, c call) (json.RawMessage, error) {
	request, err := a.request(ctx, c)
	if err != nil {
		return nil, err
	}
	response, err := a.http.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // it would tell the whole path
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", a.base, a.at.explain(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", a.base, err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return text, nil
	}
	p := &problem{Status: response.StatusCode}
	if err := json.Unmarshal(text, p); err != nil || p.Code == "" {
		return nil, fmt.Errorf("%s answered %s, which is not Doorbuster's", a.base, response.Status)
	}
	if p.Detail == web.NoSuchPath {
		return nil, a.at.explain(p)
	}
	return nil, p
}

func (a *api) request(ctx context.Context, c call) (*http.Request, error) {
	segments := []string{a.base}
	for _, segment := range c.path {
		segments = append(segments, url.PathEscape(segment))
	}
	target := strings.Join(segments, "/")
	if len(c.query) > 0 {
		target += "?" + c.query.Encode()
	}
	var body io.Reader
	if c.body != nil {
		text, err := json.Marshal(c.body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, c.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", a.base, err)
	}
	if c.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		request.Header.Set("Idempotency-Key", c.key)
	}
	if c.user != "" {
		request.Header.Set(web.UserHeader, c.user)
	} else {
		request.Header.Set("Authorization", "Bearer "+a.key)
	}
	return request, nil
}

// adminSales is the path of a sale in the admin API, and of what hangs below it.
func adminSales(more ...string) []string {
	return append([]string{"admin", "v1", "sales"}, more...)
}
