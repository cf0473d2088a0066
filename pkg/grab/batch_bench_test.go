package grab_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
)

// benchGateways is how many gateways send batches at the same time.
const benchGateways = 8

// BenchmarkBatch compares batches of 500 grabs from a few gateways with the same
// grabs one by one over 512 connections. Both run in turn on the same service and
// servers, every round on a sale of its own; ratio is single time by batch time, above
// 1 is faster than single.
func BenchmarkBatch(b *testing.B) {
	redisServer, natsServer := harness.Redis(b), harness.NATS(b)
	target, open := serveDoorbuster(b, redisServer, natsServer)
	users := 0
	var singleTook, batchTook time.Duration
	for b.Loop() {
		saleID := "bench-" + itoa(users)
		open(saleID)
		singleTook += storm(b, target, saleID, users)
		batchTook += batchStorm(b, target, saleID, users+benchRound)
		users += 2 * benchRound
	}
	grabs := float64(users) / 2
	b.ReportMetric(grabs/singleTook.Seconds(), "single-grabs/s")
	b.ReportMetric(grabs/batchTook.Seconds(), "batch-grabs/s")
	b.ReportMetric(singleTook.Seconds()/batchTook.Seconds(), "ratio")
}

// batchStorm sends benchRound grabs of new users in batches, each of which must be
// won, and returns how long it took.
func batchStorm(b *testing.B, target, saleID string, firstUser int) time.Duration {
	b.Helper()
	var next atomic.Int64
	return overConnections(b, target, benchGateways, func(conn net.Conn, answers *bufio.Reader) error {
		for last := int(next.Add(grab.MaxBatchGrabs)); last <= benchRound; last = int(next.Add(grab.MaxBatchGrabs)) {
			body := []byte(`{"grabs":[`)
			for user := firstUser + last - grab.MaxBatchGrabs; user < firstUser+last; user++ {
				body = append(body, `{"user":"user-`...)
				body = strconv.AppendInt(body, int64(user), 10)
				body = append(body, `","idempotency_key":"key-`...)
				body = strconv.AppendInt(body, int64(user), 10)
				body = append(body, `"},`...)
			}
			body = append(body[:len(body)-1], "]}"...)
			head := "POST /v1/sales/" + saleID + "/grabs:batch HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer " + gateway.GatewayKeys[0] +
				"\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
			if _, err := conn.Write(append([]byte(head), body...)); err != nil {
				return err
			}
			if err := requireAllWon(answers); err != nil {
				return err
			}
		}
		return nil
	})
}

// requireAllWon reads the answer to a full batch.
func requireAllWon(r *bufio.Reader) error {
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if won := bytes.Count(body, []byte(`"outcome":"won"`)); won != grab.MaxBatchGrabs {
		return &lostError{won, body}
	}
	return nil
}

// lostError is a batch of which not all was won.
type lostError struct {
	won  int
	body []byte
}

func (e *lostError) Error() string {
	return itoa(e.won) + " of a batch were won: " + string(e.body[:min(len(e.body), 500)])
}
