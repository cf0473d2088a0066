package grab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Bounds of a batch of grabs.
const (
	MaxBatchGrabs = 500
	MaxBatchBody  = 1 << 20 // bytes
	// batchTimeout is when what is not begun of a batch is not begun any more. It
	// leaves the rest the time of an answer.
	batchTimeout = 30 * time.Second
)

// batchBody is what a gateway gathered.
type batchBody struct {
	Grabs batchGrabs `json:"grabs"`
}

type batchGrabs []batchGrab

// UnmarshalJSON reads the list so that a problem names the grab.
func (g *batchGrabs) UnmarshalJSON(text []byte) (err error) {
	*g, err = web.DecodeList[batchGrab]("grabs", text, MaxBatchGrabs)
	return err
}

// batchGrab is one user's grab. Pointers tell what is absent from what is empty.
type batchGrab struct {
	User  string     `json:"user"`
	Key   *string    `json:"idempotency_key"`
	IP    *string    `json:"ip"`
	Items []lineBody `json:"items"`
}

// request returns the grab as a request, or a *sale.FieldError.
func (g *batchGrab) request(def *sale.Sale) (Request, error) {
	r := Request{SaleID: def.ID, User: g.User}
	if !web.ValidUser(g.User) {
		return r, &sale.FieldError{Field: "user", Message: "must be 1 to 128 printable ASCII characters without spaces"}
	}
	if g.Key != nil {
		if r.Key = *g.Key; !web.ValidIdempotencyKey(r.Key) {
			return r, &sale.FieldError{Field: "idempotency_key", Message: "must be 1 to 64 printable ASCII characters without spaces"}
		}
	}
	if g.IP != nil {
		addr, err := netip.ParseAddr(*g.IP)
		if err != nil {
			return r, &sale.FieldError{Field: "ip", Message: "must be an IPv4 or IPv6 address"}
		}
		r.IP = addr.Unmap().WithZone("").String()
	}
	var ok bool
	if r.Lines, ok = lines(g.Items); !ok {
		return r, &sale.FieldError{Field: "items", Message: itemsRange}
	}
	_, err := priced(def, r.Lines)
	return r, err
}

// postBatch decides many users' grabs for a gateway. The whole is refused when one
// of them is malformed; otherwise each gets its own answer.
func (s *Service) postBatch(w http.ResponseWriter, r *http.Request) {
	def, problem := s.sale(r.PathValue("sale_id"))
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	body, problem := web.DecodeUpTo[batchBody](r, MaxBatchBody)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	requests, problem := body.requests(def)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	s.metrics.GatewayBatch.Observe(float64(len(requests)))
	ctx, cancel := context.WithTimeout(r.Context(), batchTimeout)
	defer cancel()
	web.WriteJSON(w, http.StatusOK, s.decideAll(ctx, requests))
}

func (b *batchBody) requests(def *sale.Sale) ([]Request, *web.Problem) {
	if len(b.Grabs) == 0 {
		return nil, web.InvalidField("grabs", fmt.Sprintf("must hold 1 to %d grabs", MaxBatchGrabs))
	}
	requests := make([]Request, len(b.Grabs))
	for i := range b.Grabs {
		var err error
		if requests[i], err = b.Grabs[i].request(def); err != nil {
			field, message := "", err.Error()
			if wrong, ok := errors.AsType[*sale.FieldError](err); ok {
				field, message = "."+wrong.Field, wrong.Message
			}
			return nil, web.InvalidField(fmt.Sprintf("grabs[%d]%s", i, field), message)
		}
	}
	return requests, nil
}

// batchResults are the answers to a batch, in its order.
type batchResults []batchResult

// batchResult is what one grab of a batch became.
type batchResult struct {
	saleID  string
	answer  Answer
	problem *web.Problem // set when there is no answer
}

// decideAll decides all at once, and those of one user in their order: the next
// when the one before it has its answer.
func (s *Service) decideAll(ctx context.Context, requests []Request) batchResults {
	results := make(batchResults, len(requests))
	admitted := make([]admission, len(requests))
	next := make([]int, len(requests)) // the same user's next one, 0 for none
	last := make(map[string]int, len(requests))
	var first []int // of each user
	for i, r := range requests {
		admitted[i] = s.admit(r.User, r.IP)
		if before, ok := last[r.User]; ok {
			next[before] = i
		} else {
			first = append(first, i)
		}
		last[r.User] = i
	}
	var deciding sync.WaitGroup
	for _, begin := range first {
		deciding.Go(func() {
			for i := begin; ; i = next[i] {
				results[i] = s.decideOne(ctx, requests[i], &admitted[i])
				if next[i] == 0 {
					return
				}
			}
		})
	}
	deciding.Wait()
	return results
}

func (s *Service) decideOne(ctx context.Context, r Request, admitted *admission) batchResult {
	answer, err := s.decideInTime(ctx, r, admitted)
	if err == nil {
		return batchResult{saleID: r.SaleID, answer: answer}
	}
	if problem, ok := errors.AsType[*web.Problem](grabProblem(err)); ok {
		return batchResult{problem: problem}
	}
	s.log.ErrorContext(ctx, "grab of a batch failed", "sale", r.SaleID, "error", err)
	return batchResult{problem: web.Internal()}
}

// decideInTime is decide, unless the batch has had its time or the server stops.
func (s *Service) decideInTime(ctx context.Context, r Request, admitted *admission) (Answer, error) {
	select {
	case <-ctx.Done():
		return s.engine.done(unavailable("the batch took too long")), nil
	case <-web.Draining(ctx):
		return s.engine.done(unavailable(stopping)), nil
	default:
		return s.decide(ctx, r, admitted)
	}
}

// AppendJSON appends the results.
func (r batchResults) AppendJSON(b []byte) []byte {
	b = append(b, `{"results":[`...)
	for i := range r {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(r[i].appendMembers(append(b, '{')), '}')
	}
	return append(b, ']', '}')
}

// appendMembers appends what a single grab would be answered, with its status; of a
// problem without what follows from that.
func (r *batchResult) appendMembers(b []byte) []byte {
	problem := r.problem
	if problem == nil {
		switch r.answer.Outcome {
		case sale.Won:
			return grantedBody{r.saleID, &r.answer}.appendMembers(appendStatus(b, http.StatusCreated))
		case sale.Pending:
			return grantedBody{r.saleID, &r.answer}.appendMembers(appendStatus(b, http.StatusAccepted))
		default:
			problem = refusal(r.answer)
		}
	}
	b = problem.AppendMembers(b)
	if after := problem.RetryAfter(); after > 0 {
		b = append(b, `,"retry_after":`...)
		b = strconv.AppendInt(b, int64(after), 10)
	}
	return b
}

func appendStatus(b []byte, status int64) []byte {
	return append(strconv.AppendInt(append(b, `"status":`...), status, 10), ',')
}
