package grab

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Routes lists the patterns that Service serves.
var Routes = []string{
	"POST /v1/sales/{sale_id}/grabs",
	"GET /v1/sales/{sale_id}",
}

// Mount registers the service's routes.
func (s *Service) Mount(router *web.Router) {
	router.HandleFunc(Routes[0], s.postGrab)
	router.HandleFunc(Routes[1], s.getSale)
}

type grabBody struct {
	Items []struct {
		SKU      string `json:"sku"`
		Quantity int64  `json:"quantity"`
	} `json:"items"`
}

// grantedBody is the answer to a grab that holds a grant, in the field order of
// the contract. It is written by hand: it is the one answer whose cost counts.
type grantedBody struct {
	saleID string
	*Answer
}

// AppendJSON appends the answer's JSON object. Ids, SKUs and outcomes hold no
// character that JSON escapes.
func (g grantedBody) AppendJSON(b []byte) []byte {
	b = append(b, `{"outcome":"`...)
	b = append(b, g.Outcome...)
	b = append(b, `","order_id":"`...)
	b = append(b, g.OrderID...)
	b = append(b, `","sale_id":"`...)
	b = append(b, g.saleID...)
	b = append(b, `","items":[`...)
	for i, l := range g.Lines {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"sku":"`...)
		b = append(b, l.SKU...)
		b = append(b, `","quantity":`...)
		b = strconv.AppendInt(b, l.Quantity, 10)
		b = append(b, `,"price_cents":`...)
		b = strconv.AppendInt(b, l.PriceCents, 10)
		b = append(b, '}')
	}
	b = append(b, `],"replayed":`...)
	b = strconv.AppendBool(b, g.Replayed)
	b = append(b, `,"expires_at":"`...)
	b = g.ExpiresAt.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"', '}')
}

func (s *Service) postGrab(w http.ResponseWriter, r *http.Request) {
	request, problem := s.readGrab(r)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	answer, limited := s.limited(request)
	if !limited {
		var err error
		if answer, err = s.engine.Grab(r.Context(), request); err != nil {
			web.Failure(w, r, grabProblem(err))
			return
		}
	}
	switch answer.Outcome {
	case sale.Won:
		web.WriteJSON(w, http.StatusCreated, grantedBody{request.SaleID, &answer})
	case sale.Pending:
		web.WriteJSON(w, http.StatusAccepted, grantedBody{request.SaleID, &answer})
	default:
		web.Fail(w, r, refusal(answer))
	}
}

// readGrab reads who asks for what. Who asks comes first: a stranger learns
// nothing else.
func (s *Service) readGrab(r *http.Request) (Request, *web.Problem) {
	user, problem := s.identity.User(r)
	if problem != nil {
		return Request{}, problem
	}
	request := Request{SaleID: r.PathValue("sale_id"), User: user, IP: clientIP(r)}
	if _, ok := s.engine.Sale(request.SaleID); !ok {
		return Request{}, unknownSale()
	}
	if request.Key, problem = web.IdempotencyKey(r); problem != nil {
		return Request{}, problem
	}
	body, present, problem := web.DecodeOptional[grabBody](r)
	if problem != nil {
		return Request{}, problem
	}
	if present && body.Items != nil {
		request.Lines = make([]sale.Line, len(body.Items))
		for i, it := range body.Items {
			request.Lines[i] = sale.Line{SKU: it.SKU, Quantity: it.Quantity}
		}
		if len(request.Lines) == 0 {
			return Request{}, web.InvalidField("items", "must hold 1 to 50 lines, or be left out")
		}
	}
	return request, nil
}

// limited answers for a caller who comes too fast.
func (s *Service) limited(r Request) (Answer, bool) {
	if s.perIP == nil && s.perUser == nil {
		return Answer{}, false
	}
	now := time.Now()
	wait := max(s.perIP.wait(r.IP, now), s.perUser.wait(r.User, now))
	if wait == 0 {
		return Answer{}, false
	}
	return s.engine.done(Answer{Outcome: sale.RateLimited, Retry: wait}), true
}

// clientIP is the address of the connection.
func clientIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

func unknownSale() *web.Problem { return web.NotFound("there is no such sale") }

func grabProblem(err error) error {
	var field *sale.FieldError
	switch {
	case errors.Is(err, ErrUnknownSale):
		return unknownSale()
	case errors.As(err, &field):
		return web.InvalidField(field.Field, field.Message)
	case errors.Is(err, ErrStopped):
		return refusal(unavailable(stopping))
	}
	return err
}

// refusals says how each outcome that is not a win looks in HTTP.
var refusals = map[sale.Outcome]struct {
	status int
	detail string
}{
	sale.SoldOut:        {http.StatusConflict, "there is not enough left"},
	sale.AlreadyGrabbed: {http.StatusConflict, "this user has an order in this sale already"},
	sale.LimitExceeded:  {http.StatusConflict, "a limit of this sale refuses"},
	sale.NotOpen:        {http.StatusConflict, "the sale has not begun"},
	sale.Paused:         {http.StatusConflict, "the sale is paused"},
	sale.Ended:          {http.StatusConflict, "the sale is over"},
	sale.RateLimited:    {http.StatusTooManyRequests, "too many requests"},
	sale.NotLoaded:      {http.StatusServiceUnavailable, "the sale's state is being restored; try again with the same Idempotency-Key"},
	sale.Unavailable:    {http.StatusServiceUnavailable, "try again with the same Idempotency-Key"},
}

// refusal turns an answer into a problem. The codes of refusals are the
// outcomes themselves.
func refusal(a Answer) *web.Problem {
	how := refusals[a.Outcome]
	p := web.NewProblem(how.status, string(a.Outcome), how.detail).With("outcome", string(a.Outcome))
	if a.OrderID != "" {
		p.With("order_id", a.OrderID)
	}
	if a.Limit != "" {
		p.With("limit", a.Limit)
	}
	if a.SKU != "" {
		p.With("sku", a.SKU)
	}
	if a.Reason != "" {
		p.With("reason", a.Reason)
	}
	if a.Retry > 0 {
		p.WithRetryAfter(a.Retry)
	}
	return p
}
