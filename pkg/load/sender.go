package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Classes of answers besides the outcomes of a grab.
const (
	ClassFailed  = "failed"  // no usable answer: not connected, timed out, cut off, a fault of the service
	ClassInvalid = "invalid" // the service does not take such requests: no such sale, no such user
)

// Classes lists every class an answer can have.
var Classes = append(sale.OutcomeNames(), ClassInvalid, ClassFailed)

// answer is what came back for one request.
type answer struct {
	class      string
	orderID    string
	replayed   bool
	retryAfter time.Duration // 0 when the service named none
	problem    string        // what went wrong, for failed and invalid
	at         time.Time
}

// undecided tells whether the same request may be answered differently soon.
func (a *answer) undecided() bool {
	switch a.class {
	case ClassFailed, string(sale.Pending), string(sale.NotLoaded), string(sale.Unavailable), string(sale.RateLimited):
		return true
	}
	return false
}

// sender sends requests over a bounded number of kept connections.
type sender struct {
	client *http.Client
	cfg    Config
	target string
	body   []byte
}

// maxAnswer bounds how much of an answer's body is read, in bytes.
const maxAnswer = 64 << 10

// dialTimeout bounds opening a connection.
const dialTimeout = 5 * time.Second

func newSender(cfg Config) (*sender, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, errors.New("load: the address must be http://host:port")
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	if !cfg.AllowRemote {
		if err := checkLoopback(base.Hostname()); err != nil {
			return nil, err
		}
		// Whatever the name resolves to, no packet leaves this machine.
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return err
			}
			return checkLoopback(host)
		}
	}
	s := &sender{
		cfg:    cfg,
		target: strings.TrimSuffix(cfg.URL, "/") + "/v1/sales/" + cfg.SaleID + "/grabs",
		client: &http.Client{
			Transport: &http.Transport{
				DialContext: dialer.DialContext, MaxConnsPerHost: cfg.Connections,
				MaxIdleConns: cfg.Connections, MaxIdleConnsPerHost: cfg.Connections,
				DisableCompression: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if len(cfg.Lines) > 0 {
		if s.body, err = encodeLines(cfg.Lines); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// ErrRemote says that the crowd would leave this machine.
var ErrRemote = errors.New("not a loopback address: a crowd may be sent to another machine only by --allow-remote, and only to one of your own")

func checkLoopback(host string) error {
	ip := net.ParseIP(host)
	if host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("load: %s: %w", host, ErrRemote)
}

func encodeLines(lines []sale.Line) ([]byte, error) {
	type line struct {
		SKU      string `json:"sku"`
		Quantity int64  `json:"quantity"`
	}
	var body struct {
		Items []line `json:"items"`
	}
	for _, l := range lines {
		body.Items = append(body.Items, line{l.SKU, l.Quantity})
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("load: encode the request: %w", err)
	}
	return b, nil
}

func (s *sender) close() { s.client.CloseIdleConnections() }

// send makes one request. Its failures are answers, too.
func (s *sender) send(ctx context.Context, t task) answer {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	a, err := s.request(ctx, t)
	a.at = time.Now()
	if err != nil {
		a.class, a.problem = ClassFailed, err.Error()
	}
	return a
}

func (s *sender) request(ctx context.Context, t task) (answer, error) {
	var body io.Reader = http.NoBody
	if s.body != nil {
		body = bytes.NewReader(s.body)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target, body)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Idempotency-Key", t.key)
	if s.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	s.cfg.Sign(request, t.user)
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response, text), nil
}

// readAnswer tells what an HTTP answer means.
func readAnswer(response *http.Response, text []byte) answer {
	var body struct {
		Outcome  string `json:"outcome"`
		OrderID  string `json:"order_id"`
		Replayed bool   `json:"replayed"`
		Code     string `json:"code"`
		Detail   string `json:"detail"`
	}
	err := json.Unmarshal(text, &body)
	a := answer{class: body.Outcome, orderID: body.OrderID, replayed: body.Replayed}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.retryAfter = time.Duration(seconds) * time.Second
	}
	if err == nil && slices.Contains(sale.OutcomeNames(), body.Outcome) {
		return a
	}
	a.class = ClassInvalid
	if response.StatusCode >= http.StatusInternalServerError {
		a.class = ClassFailed
	}
	a.problem = strings.TrimSpace(fmt.Sprintf("status %d %s %s", response.StatusCode, body.Code, body.Detail))
	return a
}
