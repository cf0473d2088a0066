package grab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Routes lists the patterns that Service serves.
var Routes = []string{
	"POST /v1/sales/{sale_id}/grabs",
	"POST /v1/sales/{sale_id}/grabs:batch",
	"GET /v1/sales/{sale_id}",
	"POST /v1/quotas/{key}/deductions",
}

// Mount registers the service's routes.
func (s *Service) Mount(router *web.Router) {
	router.HandleFunc(Routes[0], s.postGrab)
	router.Handle(Routes[1], web.RequireKeys(s.gatewayKeys, http.HandlerFunc(s.postBatch)))
	router.HandleFunc(Routes[2], s.getSale)
	router.Handle(Routes[3], web.RequireKeys(s.gatewayKeys, http.HandlerFunc(s.postDeduction)))
}

type grabBody struct {
	Items []lineBody `json:"items"`
}

type lineBody struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// lines turns the items of a body into those of a request; ok is false for a list
// that is there and empty.
func lines(items []lineBody) (lines []sale.Line, ok bool) {
	if items == nil {
		return nil, true
	}
	lines = make([]sale.Line, len(items))
	for i, it := range items {
		lines[i] = sale.Line{SKU: it.SKU, Quantity: it.Quantity}
	}
	return lines, len(lines) > 0
}

const itemsRange = "must hold 1 to 50 lines, or be left out"

var quantityRange = fmt.Sprintf("must be 1 to %d", sale.MaxQuantity)

// grantedBody is the answer to a grab that holds a grant, in the field order of
// the contract. It is written by hand: it is the one answer whose cost counts.
type grantedBody struct {
	saleID string
	*Answer
}

// AppendJSON appends the answer's JSON object. Ids, SKUs and outcomes hold no
// character that JSON escapes.
func (g grantedBody) AppendJSON(b []byte) []byte {
	return append(g.appendMembers(append(b, '{')), '}')
}

func (g grantedBody) appendMembers(b []byte) []byte {
	b = append(b, `"outcome":"`...)
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
	return append(b, '"')
}

func (s *Service) postGrab(w http.ResponseWriter, r *http.Request) {
	request, problem := s.readGrab(r)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	admitted := s.admit(request.User, request.IP)
	admitted.describe(w.Header())
	answer, err := s.decide(r.Context(), request, &admitted)
	if err != nil {
		web.Failure(w, r, grabProblem(err))
		return
	}
	switch answer.Outcome {
	case sale.Won:
		web.WriteJSON(w, http.StatusCreated, grantedBody{request.SaleID, &answer})
	case sale.Pending:
		web.WriteJSON(w, http.StatusAccepted, grantedBody{request.SaleID, &answer})
	default:
		if answer.Policy == PolicySale {
			s.describeSale(w.Header(), request.SaleID, answer.Retry)
		}
		web.Fail(w, r, refusal(answer))
	}
}

// decide has the engine decide a grab that no policy of this process refuses.
func (s *Service) decide(ctx context.Context, r Request, admitted *admission) (Answer, error) {
	var answer Answer
	if admitted.refuses != "" {
		answer = s.engine.done(admitted.answer())
	} else {
		var err error
		if answer, err = s.engine.Grab(ctx, r); err != nil {
			return answer, err
		}
	}
	if answer.Policy != "" {
		s.metrics.RateLimited.Of(answer.Policy).Inc()
	}
	return answer, nil
}

// readGrab reads who asks for what. Who asks comes first: a stranger learns
// nothing else.
func (s *Service) readGrab(r *http.Request) (Request, *web.Problem) {
	user, problem := s.identity.User(r)
	if problem != nil {
		return Request{}, problem
	}
	request := Request{SaleID: r.PathValue("sale_id"), User: user, IP: s.clients.Of(r)}
	if _, problem = s.sale(request.SaleID); problem != nil {
		return Request{}, problem
	}
	if request.Key, problem = web.IdempotencyKey(r); problem != nil {
		return Request{}, problem
	}
	body, present, problem := web.DecodeOptional[grabBody](r)
	if problem != nil {
		return Request{}, problem
	}
	if present {
		var ok bool
		if request.Lines, ok = lines(body.Items); !ok {
			return Request{}, web.InvalidField("items", itemsRange)
		}
	}
	return request, nil
}

// sale returns a sale, or what who asks for it hears: that it does not exist is not
// known before the catalogue has been read.
func (s *Service) sale(id string) (*sale.Sale, *web.Problem) {
	if def, ok := s.engine.Sale(id); ok {
		return def, nil
	}
	if !s.knowsAll() {
		return nil, unread()
	}
	if def, ok := s.engine.Sale(id); ok { // it was read between the two looks above
		return def, nil
	}
	return nil, unknownSale()
}

func unknownSale() *web.Problem { return web.NotFound("there is no such sale") }

// unread answers for a sale that may be in the catalogue, which has not been read yet.
func unread() *web.Problem {
	return web.Unavailable(web.CodeUnavailable, "the service is starting; try again", retryAfter).
		With("reason", "the sales have not been read yet")
}

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
	sale.RateLimited:    {http.StatusTooManyRequests, "too many grabs"},
	sale.NotLoaded:      {http.StatusServiceUnavailable, "the sale's state is being restored; try again with the same Idempotency-Key"},
	sale.Unavailable:    {http.StatusServiceUnavailable, "try again with the same Idempotency-Key"},
}

// slowed says for each policy what goes too fast.
var slowed = map[string]string{
	PolicyUser: "this user grabs too often",
	PolicyIP:   "too many grabs come from this address",
	PolicySale: "the sale decides no more grabs in this second",
}

// refusal turns an answer into a problem. The codes of refusals are the
// outcomes themselves.
func refusal(a Answer) *web.Problem {
	how := refusals[a.Outcome]
	detail := how.detail
	if a.Policy != "" {
		detail = slowed[a.Policy]
	}
	p := web.NewProblem(how.status, string(a.Outcome), detail).With("outcome", string(a.Outcome))
	if a.OrderID != "" {
		p.With("order_id", a.OrderID)
	}
	if a.Limit != "" {
		p.With("limit", a.Limit)
	}
	if a.Policy != "" {
		p.With("policy", a.Policy)
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
