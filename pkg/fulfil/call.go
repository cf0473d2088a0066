package fulfil

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
	"strconv"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
)

// The results of a call.
const (
	resultDelivered   = "delivered"   // 2xx
	resultRefused     = "refused"     // any other answer
	resultGone        = "gone"        // 410: the receiver never wants to hear of it again
	resultTimeout     = "timeout"     // no answer in time
	resultUnreachable = "unreachable" // no connection, or one that broke
	resultStopped     = "stopped"     // this process ends: nobody knows
)

// Results lists the results of a call, for metrics.
var Results = []string{resultDelivered, resultRefused, resultGone, resultTimeout, resultUnreachable, resultStopped}

// Bounds of an answer, of which only the status and one header matter.
const (
	maxAnswerHeader = 64 << 10 // bytes
	maxAnswerBody   = 64 << 10 // bytes that are read so that the connection can be used again
)

// answer is what came of a call.
type answer struct {
	result string
	why    string // what failed, for people; never holds a URL
	// after is what the receiver asked to wait; 0 when it did not.
	after time.Duration
}

// caller calls receivers.
type caller struct {
	client  *http.Client
	signer  signer
	timeout time.Duration
}

func newCaller(s signer, timeout time.Duration, perHost int) *caller {
	dialer := &net.Dialer{Timeout: timeout, KeepAlive: keepAlive}
	return &caller{signer: s, timeout: timeout, client: &http.Client{
		// The receiver has the address that the operator gave, and no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: timeout, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: perHost, IdleConnTimeout: idleTimeout,
			MaxResponseHeaderBytes: maxAnswerHeader, DisableCompression: true,
		},
	}}
}

// Connections to receivers that are kept for the next call.
const (
	maxIdle     = 100
	idleTimeout = 90 * time.Second
	keepAlive   = 30 * time.Second
)

func (c *caller) close() { c.client.CloseIdleConnections() }

// call sends a delivery once.
func (c *caller) call(ctx context.Context, d *ledger.Delivery) answer {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := c.request(bounded, d)
	if err != nil {
		return answer{result: resultUnreachable, why: withoutURL(err).Error()}
	}
	response, err := c.client.Do(request)
	if err != nil {
		return c.failure(ctx, err)
	}
	defer response.Body.Close()
	// What it says does not matter; a connection that was read to the end is kept.
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswerBody)
	return judge(response, time.Now())
}

func (c *caller) request(ctx context.Context, d *ledger.Delivery) (*http.Request, error) {
	var event struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(d.Body, &event); err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(d.Body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Doorbuster")
	return request, c.signer.sign(request.Header, event.ID, time.Now(), d.Body)
}

// failure says why there is no answer.
func (c *caller) failure(ctx context.Context, err error) answer {
	timed, ok := errors.AsType[net.Error](err)
	switch {
	case ctx.Err() != nil:
		return answer{result: resultStopped, why: "this process ended during the call"}
	case ok && timed.Timeout():
		return answer{result: resultTimeout, why: fmt.Sprintf("no answer within %s", c.timeout)}
	}
	return answer{result: resultUnreachable, why: withoutURL(err).Error()}
}

// withoutURL takes the address off an error: its query may hold a token.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// judge says what an answer means.
func judge(response *http.Response, now time.Time) answer {
	status := response.StatusCode
	why := fmt.Sprintf("status %d", status)
	switch {
	case status >= 200 && status < 300:
		return answer{result: resultDelivered}
	case status == http.StatusGone:
		return answer{result: resultGone, why: why}
	}
	return answer{result: resultRefused, why: why, after: retryAfter(response.Header.Get("Retry-After"), now)}
}

// retryAfter reads seconds or a date; 0 is neither.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
